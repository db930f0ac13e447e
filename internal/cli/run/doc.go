// Package run has grun (srun), which runs a command as the tasks of a step.
//
//	grun.go options.go  the command, its options, and which job the step belongs to
//	joboptions.go       options that describe a job, and refused ones
//	outside.go          grun outside of a job: it gets an allocation first
//	talk.go             the conversation with the daemon that runs the step
//	files.go remote.go  the tasks' input and output: files, pipes, and streams from other nodes
//	terminal.go         --pty
//	say.go              messages about the ends of tasks
//	het.go mpi.go       --het-group, --mpi
//
// Package request has the options for resources; package allocate waits for an allocation and
// releases it.
package run
