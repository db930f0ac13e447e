// Package program runs programs on a controller: those of the site (PrologSlurmctld, ResumeProgram,
// JobSubmitProgram and so on), and those of users (triggers).
//
// program.go has a call and its output. child.go is the process that becomes a user first and then
// the user's program.
//
// Invariants: a program runs in a process group of its own, which is killed at the limit and when
// the caller's context ends; what is kept of its output has a bound; nothing that a user chooses
// (a path, a signal) can hold up the controller.
//
// It doesn't own which programs run, when, with which environment, and what their ends mean: those
// are their callers'.
package program
