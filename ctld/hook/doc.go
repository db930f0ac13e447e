// Package hook runs JobSubmitProgram: a program of the site that sees each submission, and each
// change of a job, before it is made, and may change it, refuse it, or say something to its user.
//
// It owns what the program reads and writes (members.go is the table of both, from which the manual
// page gbatch-hooks(7) is made), its process, its time limit and how many run at once. What an
// answer means for a job is package ctld's: it checks all of it as if the user had written it.
//
//	members.go  the members of a job
//	call.go     a call and its answer, as JSON
//	run.go      the process: user, time limit, turns
//
// Invariants: nothing of an answer is passed over, a member that is not known is an error; at most
// Parallel programs run at once, half of them for one user; a program and all that it started ends
// at its time limit; what is read of it is bounded.
package hook
