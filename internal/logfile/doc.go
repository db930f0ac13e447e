// Package logfile is where a daemon's log goes: a file that can be opened anew while it runs,
// or standard error, with a level that can change.
//
// It owns the file, how a line is written, and the names of levels, which are Slurm's. It doesn't
// own what is logged, nor the counting of repeated errors (quietlog), nor signals: a daemon's main
// function hears SIGHUP.
//
//	logfile.go  Open, Reopen, SetLevel
package logfile
