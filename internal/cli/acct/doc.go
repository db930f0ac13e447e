// Package acct has the commands for accounting and usage of jobs.
//
//	events.go   gacct --events: what happened to jobs
//	gacct.go    gacct (sacct): jobs from accounting, ended ones too
//	options.go  its options, and which records they pick
//	json.go     gacct --json
//	live.go     the steps that still run, which accounting does not have yet
//	gstat.go    gstat (sstat): what running jobs use now
//	history.go  gstat --history: what was measured over time
//	gseff.go    gseff (seff): how well a job used what it held
//	habits.go   gseff --user: a user's jobs by name, and what to ask for
//
// The columns and the JSON are package jobtext's.
package acct
