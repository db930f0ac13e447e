// Package jobevents tells JobEventProgram what happens to jobs: one call for each event, with the
// event as JSON on its standard input. event.go makes events of what the state remembers
// (View.HappenedAfter), teller.go runs the program.
//
// Invariants: the events of one job are told in order, one after the other; at most Parallel
// programs run at once, and each is killed at its time limit; at most maxWaiting events are in
// memory, all others wait in what the state remembers, and what that loses is counted and logged.
// Nothing waits for the program. An event is told at least once also when another controller takes
// the lead, since it goes on from the place up to which the last leader said that all was told
// (Told); the event's id tells a repeated one. Nothing is told twice for any other reason: a
// program that fails is not called again.
//
// It doesn't own: what happened (internal/state), the process (package ctld), and how the leader's
// place reaches the other controllers (ctld/clocks.go).
package jobevents
