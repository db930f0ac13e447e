// Package trigger runs the programs of triggers on the controller that leads.
//
// plan.go decides, of a view and a moment: what time alone has brought (a job's limit is near,
// nodes have been idle), and whose programs are due. keeper.go proposes the first and runs the
// second, each as the user who set the trigger (run.go), and says into the log that they have run.
//
// Invariants: a program runs as nobody else than the user who set its trigger, and only while the
// site lets that user have triggers; of one trigger one program runs at a time; the programs of
// one user, and those of all users but root and SlurmUser, are bounded, so none that hangs holds
// up those of others; each is killed with its process group after Limit. A program that another
// leader has begun, and of which it did not say that it had ended, runs again.
//
// It doesn't own what has happened (internal/state/trigger.go), who may set triggers, and how the
// daemons are (package ctld).
package trigger
