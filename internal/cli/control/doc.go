// Package control has gcontrol (scontrol), which shows and changes jobs, nodes and the
// configuration.
//
//	gcontrol.go     the verbs and the options that all have
//	showjob.go showstep.go shownode.go shownetwork.go showtopology.go   what show shows, but for
//	                reservations; showassocs.go what counts against the limits of associations
//	slurmwords.go   commands and keys of show config about what gbatch has in another way
//	writeconfig.go  write config
//	reservation.go  reservations: create, update, delete, show
//	change.go       hold, release, requeue, suspend, reconfigure and the like
//	update.go       update, create and delete of jobs, nodes and partitions
//	nodes.go        what is only of nodes, with reboot and power
//	moments.go      points in time and time limits of update
//	wait.go         wait_job and completing
//	controllers.go  controllers: the list, add, remove, replace
//	snapshot.go     snapshot: the controller's state for a restore; dump: the same for the
//	                simulator, or as JSON
//	token.go        tokens for HTTP
//	import.go       import, which gbatch does
//	pids.go         listpids and pidinfo: the processes of jobs
//	json.go         --json
//	complete.go     what a shell completes
//	why.go doctor.go mig.go   gbatch's own verbs
//
// The texts and the JSON of jobs, nodes, partitions and reservations are package jobtext's.
package control
