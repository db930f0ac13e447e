// Package program runs programs on a controller: those of the site (PrologSlurmctld, ResumeProgram,
// JobSubmitProgram and so on), and those of users (triggers).
//
// program.go has a call and its output. child.go is the process that becomes a user, if need be,
// and then the program; keeper.go one that waits for it and lets nothing of it survive.
//
// Invariants: a program runs in a process group of its own, which is killed at the limit and when
// the caller's context ends; what is kept of its output has a bound; neither a path on a file
// system that hangs nor a user's signal holds up the controller, and one that can't be killed holds
// up no caller for more than some seconds.
//
// It doesn't own which programs run, when, with which environment, and what their ends mean: those
// are their callers'.
package program
