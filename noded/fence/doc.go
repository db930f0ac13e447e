// Package fence answers one question for a node that no controller acknowledges any more: is it
// given up? If so, gshim ends what runs on it (noded/shim/lease.go), because its jobs start
// elsewhere. If not, jobs outlive the daemons.
//
// Two sides. Keeper is gnoded's: it renews gshim's lease with each acknowledged word, and keeps in
// the spool whom to ask. Main is a short-lived program, gnoded with a hidden argument, that gshim
// runs when no renewal comes; it asks all of them at once and prints the verdict.
//
// # The verdict
//
//  1. A controller or a witness hears a leader that has heard nodes for t: the node is given up
//     SlurmdTimeout after that leader began, so it is cut off then, and not before. gnoded is dead,
//     stopped or cut off.
//  2. Nobody says so, and a controller's host or a witness gives a sign of life: keep. Controllers
//     are down, or none leads.
//  3. Nobody gives any sign, and there are witnesses on other hosts than the controllers': this
//     node is isolated, and cut off.
//  4. Otherwise keep: a cluster of one node, or one whose witnesses are all on the controllers'
//     hosts, can't tell its own isolation from controllers that are down.
//
// A witness is another node's daemon. It does not answer from memory: it sends a heartbeat and
// waits for its acknowledgement, since what it heard before says nothing about now.
//
// # Times
//
// The lease ends SlurmdTimeout less a margin after the last acknowledged word was sent, so that
// killing is done when the node is given up. Both are in times.go. Clocks are the machine's time
// since boot: nobody sets them.
//
// # Limits
//
// A node that reaches only a controller which is itself cut off from the leader keeps its jobs
// (rule 2), and the leader gives them up. To end them would end all jobs of a cluster when the
// hosts of two of three controllers lose power, which looks the same from there.
//
// Killing by SIGKILL is not a power switch: processes that hang in the kernel outlive it, and so
// does a node whose machine stands still, clock and all, and goes on later. Those are ended when
// the node registers again (ctld/comeback.go).
//
// Files: keeper.go (gnoded's side), main.go (the program), decide.go (the verdict, pure), ask.go
// (the network), times.go.
package fence
