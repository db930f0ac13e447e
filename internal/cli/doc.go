// Package cli is the user commands: gsubmit/sbatch, gqueue/squeue and the rest. One small binary (cmd/gcli) is all of
// them, chosen by the name it is called by.
//
// One file per command, named after it, plus what several need: jobref.go (job ids as people write them), names.go
// (users), cli.go (the table of commands, errors, exit codes). The layers below: getopt reads options, internal/format
// prints tables and templates, script reads batch scripts; internal/client talks to the cluster.
//
// A command is a function of an Env, without globals, so that tests run it in-process. It never exits the process and
// starts no goroutine that outlives it. Standard error stays empty on success: tools take text there for trouble.
package cli
