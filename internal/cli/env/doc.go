// Package env has the code that all commands share, and the only code that commands of different
// packages share.
//
//	env.go      Env, what a command sees of the world; its errors and exit codes
//	cluster.go  what commands ask the cluster before their own question
//	jobref.go   jobs and steps as people write them
//	names.go    users, groups, signals and states by name
//	why.go      gqueue --why and gcontrol why
//	optionhelp.go  options whose value is help
//	olddeps.go  submitting jobs that depend on ones that only accounting remembers
//	filter.go   CliFilterProgram
//	numbers.go  numbers of associations and QOS, for tables that show them
//	times.go    how moments are written, from the user's environment
//
// A command is a function of an Env, without globals, so that tests run it in-process.
package env
