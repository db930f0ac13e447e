// Package migrate reads what a Slurm installation leaves behind and turns it into gbatch's: its
// configuration files, what `sacctmgr dump` and `sacctmgr -P show qos` write, and what `sacct
// -P` prints.
//
// files.go reads a directory of configuration files, dbdconf.go slurmdbd.conf and topology.go a
// topology.yaml that can't be copied. accounts.go makes one flat file, which package acctmgr
// loads, of the dump and the list of QOS. history.go reads rows of sacct one by one,
// historyjob.go and historystep.go turn each into an accounting record, values.go reads sacct's
// values. report.go is the list of what was kept, translated, ignored or lost.
//
// It writes no file but in a directory that it is given for trying a configuration, asks no
// daemon and opens no connection: cmd/gbatch does.
//
// Invariants:
//
//   - Every key, line and column of the input is in the report with its place, or is in
//     the output. Nothing is left out silently.
//   - The same row gives the same record, whatever stands around it and however often it
//     is read, so a second import replaces the records of the first. An attempt's number
//     is the time of its submission, in seconds.
//   - Memory does not grow with the number of rows. Lines, and what is reported, are
//     bounded.
package migrate
