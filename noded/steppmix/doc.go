// Package steppmix is the process beside a step's tasks that serves Open MPI's programs among
// them (grun --mpi=pmix): libpmix's server, loaded when it is needed. gshim starts gnoded's
// program as it, since gshim has no cgo, in the step's control group and as the step's user.
// It outlives gnoded, and ends when the tasks have.
//
// It owns the calls of libpmix (lib_cgo.go, calls_cgo.go) and a directory in /tmp for the
// library and the programs, which it removes. gnoded makes the tasks' connections and sends
// their other ends, and the address of the step's command, on the socket that is the process's
// standard input. By its own end of a connection a task gets the variables that lead to the
// server (noded/taskenv), and the server learns that the task has ended. What servers say to
// each other, and what a step's tasks may do, is internal/pmix's.
//
// order.go is what gnoded says, main.go the process, lib_nocgo.go a gnoded without a C
// compiler's.
package steppmix
