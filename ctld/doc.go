// Package ctld is the controller: a raft member that takes commands, plans, tells nodes what to
// run and ships accounting records while it leads, and that replicates and forwards while it
// doesn't.
//
// It doesn't own facts (internal/state), decisions (internal/sched, and resv for reservations),
// the log (internal/store) or the wire (internal/rpc).
//
// The frame:
//
//	fromconf.go  from the command line and gbatch.conf to Options; the first certificates
//	options.go   what a controller is, and the limits of its loops
//	ctld.go      New, Run, Close
//	leader.go    the leader's loops, the clock, and propose: the one way to change a fact
//	machine.go   the state behind the log: Apply, Views, and who waits for a change
//	outcome.go   what a command that may be in the log means for the request behind it
//	heap.go      when the collector runs
//
// Requests of users:
//
//	rpc.go       who asks: the local socket, the daemons' port, forwarding to the leader
//	handlers.go  which method answers which request
//	links.go     kept connections to the leader and to gdbd
//	refusals.go  the words of refusals
//	private.go   what PrivateData hides from whom
//	attend.go    gives back what a command held that was killed
//
// A job comes in, and is changed:
//
//	submit.go       validates, places in partitions, proposes
//	submiteach.go   does so for many that differ in arguments
//	submitneeds.go  what few jobs ask for; submittimes.go the times, submitshare.go shared GPUs
//	misfit.go       why a job can never run, and the most that there is
//	admin.go        cancel, signal, hold, release, requeue, suspend: and who may
//	jobedit.go      gcontrol update job; jobneeds.go what a waiting job needs of nodes
//	top.go          gcontrol top
//
// Planning, with what it goes by:
//
//	cycle.go     a pass whenever something has changed
//	priority.go  the order of the queue
//	ownrules.go  the order and predictions where nothing is configured
//	bftime.go    bf_max_time
//	gang.go      jobs that take turns
//	gpucost.go   what each GPU costs, for GpuSelectPolicy
//	forecast.go  gqueue --start; partgives.go what a partition gives jobs that don't say
//
// Nodes:
//
//	nodes.go         sessions: who is connected, and registration
//	comeback.go      a node that fell silent comes back
//	dispatch.go      orders: what the facts want of a node and it hasn't been told
//	nodereports.go   what nodes report, many in one log entry
//	nodeask.go       questions to one node
//	nodeedit.go      drain, resume, down, of nodes and of single units; nodeunits.go shows units
//	health.go        HealthCheckProgram
//	gpuidle.go       GpuIdlePolicy
//	mig.go           gcontrol mig apply
//
// Lists and looks:
//
//	query.go     jobs, nodes, partitions, configuration, wait, script
//	why.go       gqueue --why
//	steps.go     running steps; stat.go what they use
//	counts.go    gdiag
//	doctor.go    gcontrol doctor
//	dump.go      gcontrol dump
//
// Configuration, accounts, reservations:
//
//	reconfigure.go  reads the files anew; configdiff.go what that changes
//	accounts.go     accounts, users, QOS, shares and priorities' factors
//	reservation.go  reservations; package resv makes them
//
// What leaves the controller besides orders:
//
//	outbox.go         ships records to gdbd; record.go writes them
//	acct.go           passes gacct's questions on
//	slurmctldprog.go  PrologSlurmctld and EpilogSlurmctld
//	mail.go           MailProg
//	alert.go          AlertProgram
//
// Loops are level-triggered: each looks at the facts and does what is missing, so a loop that
// begins anew on another controller needs no hand-over.
package ctld
