// Package allocate gets resources for a command that runs outside of a job, holds them, and
// releases them.
//
//	allocate.go  Allocation: a job whose script only waits
//	attend.go    the daemon of this host sees to it that the job ends with the command
//	hear.go      the end of the job, and what is said to the command
package allocate
