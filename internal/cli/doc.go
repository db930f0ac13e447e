// Package cli is the user commands: gsubmit/sbatch, gqueue/squeue and the rest. One small binary
// (cmd/gcli) is all of them, chosen by the name it is called by.
//
//	cli.go    the table of commands
//	submit    gsubmit galloc gcrontab
//	run       grun
//	queue     gqueue gcancel
//	info      ginfo
//	control   gcontrol
//	acct      gacct gstat gseff
//	manage    gacctmgr gshare gprio gdiag gtrigger
//
// No room of commands imports another. Their common code is in packages below them: env (a
// command's environment, ids, names, errors), request and allocate (requests of submit and run),
// getopt (options), script (batch scripts), prompt (commands read from standard input). What is
// shown of a job, record, step, node, partition or reservation is internal/jobtext's, in tables of
// internal/format and lists of internal/slurmjson; internal/acctmgr has the language of gacctmgr;
// internal/client talks to the cluster. Tests use clitest.
//
// A command is a function of an Env, without globals, so that tests run it in-process. It never
// exits the process and starts no goroutine that outlives it. Standard error stays empty on
// success, because tools treat text there as an error.
package cli
