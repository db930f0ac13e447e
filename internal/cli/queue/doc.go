// Package queue has the commands about pending and running jobs.
//
//	gqueue.go   gqueue (squeue): its options, formats and errors
//	list.go     asking for jobs, and which of them are shown
//	reader.go   reading them as they stream in, 10,000 in some ten milliseconds
//	sort.go     the table's lines and their order
//	json.go     gqueue --json
//	steps.go    gqueue -s: running steps
//	gcancel.go  gcancel (scancel): ends jobs and steps, or sends them a signal
//
// Package jobtext has the columns and the JSON.
package queue
