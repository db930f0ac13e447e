// Package jobtext writes jobs, accounting records, steps, nodes, partitions and reservations in
// Slurm's words, in one place: the columns of squeue and sacct, the text of scontrol show, and the
// objects of --json in each version.
//
// A row is a value of package model with the data that its table shares (JobRow and JobView,
// RecordRow and RecordView, NodeRow and NodeView, StepRow, StatRow). A language (JobLanguage,
// RecordLanguage, NodeLanguage, StepLanguage, StatLanguage) is the table of a row's fields, which
// package format turns into lines. Show... gives scontrol's text.
//
//	job.go jobrows.go jobfields.go   a job as a row, the rows that it makes, and the columns
//	jobshow.go jobjson.go    a job as scontrol show job and as JSON
//	why.go                   why a job waits, and what would let it start sooner
//	record.go recordfields.go recordjson.go   a record of accounting with its steps, the same way
//	usage.go                 what a step used: the fields that sacct and sstat share
//	step.go stepstat.go      a running step: in squeue, in scontrol show step, in sstat
//	node.go nodefields.go    partitions and nodes as sinfo puts them together
//	nodestate.go nodeshow.go nodejson.go unitsout.go   a node's state, text and JSON
//	gpu.go                   GPUs one by one, as ginfo -G lists them
//	partition.go reservation.go   text and JSON of both
//	members.go               rarer members of jobs, nodes and partitions, what REST has otherwise
//	tres.go words.go times.go     resources, small words, and moments in the user's form
//
// The objects of --json (JobJSON, RecordJSON, NodeJSON ...) are tables of fields with types, of
// which slurmjson makes every version; testdata/json.txt holds what programs can rely on.
//
// It knows no client, no command and no terminal, reads no environment and asks no clock, so that
// commands, an HTTP server and mail can use it: the time, its zone and form come in as Times.
package jobtext
