// Package acctmgr is what gacctmgr does between reading its words and asking the cluster: it finds out which records a
// command means, makes the changed ones, and says in Slurm's words what will happen.
//
// It is pure: Facts in, a Plan (text and edits) or a table out. Who asks, prompts and sends is package cli. The cluster
// checks everything again: the edits name the generation of the facts that they were made from.
//
// Read words.go (the command line), attr.go (what can be set, and how it is written), add.go, modify.go, remove.go,
// show.go.
package acctmgr
