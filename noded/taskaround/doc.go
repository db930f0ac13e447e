//go:build linux && (amd64 || arm64)

// Package taskaround is the process around a task that has epilogs: it starts the task, waits for
// it, runs the epilogs, and ends as the task did. gshim knows it as the task.
//
// A signal for all processes of a step comes to this process and to the task, and this one drops
// its own. For one that is for the task alone gshim sends PassOn, whose value is the signal
// (shim/signal.go). To read that value, all threads have PassOn blocked; the program starts itself
// anew to have it blocked from the beginning.
//
// around.go is that process; mask.go binds a task to the CPUs that a prolog names. It owns nothing
// else. The prologs, and what they print, are the shell's that becomes this (stepmake.go).
package taskaround
