// Package manage has the commands about accounts, shares and the scheduler.
//
//	gacctmgr.go flat.go           gacctmgr (sacctmgr); package acctmgr has its language
//	job.go                        modify job: records of jobs that have ended
//	history.go                    show event and show transaction
//	showconfig.go                 show configuration: what gbatch.conf says about accounting
//	pools.go                      partitions with what is free, and quotas: show pool
//	money.go                      credit, budgets, invoices, balances and prices
//	gshare.go   gshare (sshare): shares and usage
//	gprio.go    gprio (sprio): the factors of priorities
//	gdiag.go                      gdiag (sdiag): the scheduler's statistics
//	gtrigger.go                   gtrigger (strigger): programs that run when something happens
//	complete.go                   what a shell completes of gacctmgr
package manage
