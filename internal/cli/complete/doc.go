// Package complete answers shells that complete command lines: gcli complete SHELL COMMAND WORD...
// prints what may stand in the place of the last word, a line for each, with what it means after a
// tab. A line that begins with a colon asks the shell for names of its own: :files, :dirs,
// :commands, :users.
//
// The command itself says what stands there, from the table that it reads its options by
// (getopt/complete.go). This package knows what kind of value an option takes (values.go) and asks
// the cluster for partitions, jobs and the like (live.go); complete.go picks and prints what fits.
// etc/completion has the shells' side.
package complete
