// Package acctmgr is gacctmgr's logic between its command line and the request to the cluster: it
// finds the records that a command means, makes the changed ones, and says in Slurm's words what
// will happen.
//
// It is pure: Facts in, a Plan (text and edits) or a table out. Package cli/manage asks, prompts
// and sends. The cluster checks everything again: the edits carry the generation of the facts from
// which they were made.
//
//	facts.go plan.go      what is known, and what is to be changed
//	words.go attr.go      the command line; what can be set, and how it is written
//	keys.go               the words KEY= of an entity, for completion
//	picked.go             which records a command means
//	add.go adduser.go modify.go where.go remove.go wckey.go
//	show.go showfields.go tables and their fields
//	json.go limits.go     the same as JSON, in each version; where its limits stand
//	flatdump.go flatload.go   the text file of dump and load
package acctmgr
