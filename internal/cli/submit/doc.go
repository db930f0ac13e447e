// Package submit has the commands that submit jobs.
//
//	gsubmit.go  gsubmit (sbatch): a batch script
//	missing.go  its warnings about directories and files that this host does not have
//	each.go     gsubmit --each: a job for each line of a file
//	gcrontab.go gcrontab (scrontab): jobs that come back; editor.go its -e
//	galloc.go   galloc (salloc): an allocation, and a command or shell with it
//
// Package request has the options for resources; package allocate waits for an allocation and
// releases it.
package submit
