// Package jobtext says jobs, accounting records, steps, nodes, partitions and reservations in
// Slurm's words, once: what squeue's and sacct's columns show, what scontrol show prints, and what
// --json has in each version.
//
// A row is a value of package model with what its table shares (JobRow and JobView, RecordRow and
// RecordView, NodeRow and NodeView, StepRow, StatRow). A language (JobLanguage, RecordLanguage,
// NodeLanguage, StepLanguage, StatLanguage) is the table of a row's fields, which package format
// turns into lines. Show... gives scontrol's text. ...JSON writes to a slurmjson.Writer, which
// knows the version.
//
//	job.go jobfields.go        a job as a row: what each column shows, and the letters and names of the columns
//	jobshow.go jobjson.go      a job as scontrol show job and as JSON
//	record.go recordfields.go recordjson.go   the same of accounting's records, with their steps
//	usage.go stepstat.go       what a step used: the fields that sacct and sstat share; a running step's row
//	step.go                    a running step as a row and as scontrol show step
//	node.go nodefields.go      partitions and nodes as sinfo puts them together
//	nodestate.go nodeshow.go nodejson.go unitsout.go gpu.go   a node's state, text and JSON; its GPUs
//	partition.go reservation.go   text and JSON of both
//	tres.go words.go times.go  resources, small words, and moments in the form that the user wants
//
// It knows no client, no command and no terminal, reads no environment and asks no clock, so that
// commands, an HTTP server and mail can use it: the time, its zone and form come in as Times.
package jobtext
