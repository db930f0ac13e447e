// Package manage has the commands about accounts, shares and the scheduler.
//
//	gacctmgr.go flat.go json.go   gacctmgr (sacctmgr): package acctmgr reads its words and makes the changes
//	gshare.go   gshare (sshare): shares and usage
//	gprio.go    gprio (sprio): the factors of priorities
//	gdiag.go diagjson.go          gdiag (sdiag): the scheduler's statistics
package manage
