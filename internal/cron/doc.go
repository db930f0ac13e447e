// Package cron reads crontabs as users write them: lines with five fields of times and a command,
// lines with #SCRON and options for the next entry, variables.
//
//	schedule.go  the five fields, and the words with @
//	next.go      the next moment of a schedule in a time zone
//	crontab.go   the lines of a crontab
//
// It decides nothing about jobs and knows no clock: whoever asks for the next moment says after
// which. The syntax is that of crontab(5); days of the month and of the week count as in Slurm: if
// neither field is *, a day that is in either counts.
//
// Invariants: every Schedule has a next moment within nine years; what String gives is read again
// as the same Schedule.
package cron
