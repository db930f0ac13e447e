// Package run has grun (srun), which runs a command as the tasks of a step, and commands that work
// on steps.
//
//	grun.go options.go  the command, its options, and what they ask for
//	command.go find.go  what the tasks run, and the daemon that makes the step
//	joboptions.go       options that describe a job, and refused ones
//	outside.go          grun outside of a job: it gets an allocation first
//	steps.go talk.go    the loop over the steps; the conversation with the daemon that runs one
//	files.go remote.go  the tasks' input and output: files, pipes, and streams from other nodes
//	terminal.go         --pty
//	say.go              messages about the ends of tasks
//	around.go           --prolog and --epilog
//	het.go mpi.go       several components, --mpi
//	x11.go              --x11
//	async.go elastic.go  --async; --elastic, which begins again when the job's nodes change
//	gattach.go guests.go   gattach (sattach), and grun's part of it
//	gbcast.go           gbcast (sbcast) and --bcast: a file for the nodes of a job
//
// Package request has the options for resources; package allocate waits for an allocation and
// releases it.
package run
