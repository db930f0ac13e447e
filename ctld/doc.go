// Package ctld is the controller, a raft member. While it leads, it takes commands, plans, sends
// nodes their orders and ships accounting records. While it follows, it replicates the log and
// forwards requests.
//
// It doesn't own facts (internal/state), decisions (internal/sched, and resv for reservations),
// the log (internal/store) or the wire (internal/rpc).
//
// The frame:
//
//	fromconf.go  from the command line and gbatch.conf to Options; the first certificates; when the
//	             collector runs
//	options.go   Options, and the limits of the loops
//	ctld.go      New, Run, Close
//	leader.go    the leader's loops, the clock, propose: the one way to change a fact. For how long
//	             it leads for certain says package lease
//	clocks.go    the cluster's time, and whose clock is wrong; clock decides it
//	machine.go   the state behind the log: Apply, Views, waiting for changes
//	members.go   who the controllers are; memberedit.go adds and removes them
//
// Requests of users:
//
//	rpc.go       the local socket, the daemons' port, forwarding to the leader
//	handlers.go  the method that answers each request; reads.go those that only read
//	once.go      a change is made once, however often its request comes
//	links.go     kept connections to the leader and to gdbd
//	refusals.go  the texts of refusals, and the answer when the command may be in the log
//	http.go      requests that come over HTTP; package rest serves it, package metrics
//	             Prometheus, package page people
//	tokens.go    tokens that speak for users there; package token makes them
//	private.go   PrivateData
//	cancel.go    ends and signals jobs and steps, also the job of a command that was killed
//
// A job comes in, and is changed:
//
//	submit.go       validates, places in partitions, proposes
//	submiteach.go   the same for many jobs that differ only in their arguments, and for crontabs,
//	             whose jobs package crontab lets come back
//	het.go          the same for the components of a heterogeneous job
//	submitneeds.go  rare requests, times; submitshare.go shared GPUs
//	submithook.go   JobSubmitProgram; package hook runs it
//	misfit.go       why a job can never run, and the most that it could have
//	admin.go        cancel, signal, hold, release, requeue, suspend, and the right to; package
//	             alike divides arrays by what a change makes of their tasks
//	jobedit.go      gcontrol update job; jobneeds.go a pending job's needs of nodes,
//	             and a running job's nodes
//
// Planning, and its inputs:
//
//	cycle.go     a pass whenever something has changed; jobs that take turns
//	priority.go  the order of the queue and its factors, gcontrol top
//	ownrules.go  the order and predictions where nothing is configured
//	forecast.go  --test-only, and what lists add to pending jobs: gqueue --start, partitions'
//	             defaults
//
// Nodes:
//
//	nodes.go         sessions and registration
//	comeback.go      a node that fell silent comes back
//	dispatch.go      orders that the facts require and the node has not got yet
//	nodereports.go   reports of nodes, many in one log entry; nodes' units for lists
//	nodeask.go       questions to one node, and requests that it answers: signals, messages, steps
//	nodeedit.go      changes of nodes, of single units and of partitions
//	reboot.go        gcontrol reboot; starts package power, which powers nodes down and up
//	health.go        what a node lacks, and HealthCheckProgram
//	gpuuse.go        the cost of each GPU, for GpuSelectPolicy; GpuIdlePolicy
//	mig.go           gcontrol mig apply
//
// Lists and looks:
//
//	query.go     jobs, nodes, partitions, configuration, wait, script
//	why.go       gqueue --why
//	steps.go     running steps; stat.go their usage, and samples of it for gdbd (package samples)
//	counts.go    gdiag
//	doctor.go    gcontrol doctor
//	certs.go     requests about certificates, which package issue gives and takes back
//	dump.go      gcontrol dump and gcontrol snapshot; package restore gives a state back
//
// Configuration, accounts, reservations:
//
//	reconfigure.go  reads the files again; configdiff.go lists the changes
//	caller.go       who asks, and what they may ask
//	accounts.go     accounts, users, QOS and shares
//	reservation.go  reservations; package resv makes them, package define partitions and nodes
//
// Other output of the controller:
//
//	outbox.go         ships records to gdbd, at once if somebody asks for them (package asked)
//	record.go         writes records
//	acct.go           passes gacct's questions on
//	money.go          credit, balances, invoices
//	slurmctldprog.go  PrologSlurmctld, EpilogSlurmctld; JobEventProgram, for package jobevents
//	mail.go           MailProg
//	alert.go          AlertProgram, for nodes, GPUs and daemons (package alarm)
//	triggers.go       who may have triggers; package trigger runs their programs
//
// Loops are level-triggered: each looks at the facts and does what is missing, so a loop that
// begins anew on another controller needs no hand-over.
package ctld
