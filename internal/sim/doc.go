// Package sim replays a workload through the scheduler that runs in production: `gbatch sim`.
//
// Jobs of a trace are submitted to a real state.State at the trace's own seconds, a real planner of
// package sched decides what starts, its plans are applied as a controller would apply them, and a
// job ends when the trace says so. There is no second model of the cluster and no second scheduler:
// a virtual clock takes the place of the daemons, nothing else.
//
// The way of a replay: read.go opens a file and tells its format; swf.go, gpucsv.go, openb.go and
// acct.go read one format each into a Workload; machine.go makes the cluster's configuration,
// scheduler.go the policy by its name (orders.go has the published orders, configured.go what a
// configuration asks for); replay.go is the clock, preempt.go what preemption does to it;
// metrics.go counts what became of the jobs, report.go, jobsout.go and plot.go show it. verb.go
// ties them together for cmd/gbatch. fill.go fills a machine until its jobs have asked for all of
// it; forecast.go runs a live cluster's dump forward, changed by whatif.go.
//
// # Time within one second
//
// Traces count whole seconds, and what happens in which order within one second moves averages by
// several percent. Events says which order: Batch is one planning pass per second in which
// something happened, after all ends and then all arrivals of that second. Single is one pass per
// event: arrivals first, in file order, then ends, in the order in which the jobs had started; a
// job that ends exactly at its time limit is gone before the first of these passes. With
// conservative backfill the moment at which a kept reservation falls due is an event too.
//
// exact_test.go holds both ways to published schedules of real logs; reference_test.go is the
// plainest planner that gives them, and the production planner is held to it on random workloads.
//
// # Invariants
//
//   - Equal workload, machine, scheduler, events and seed give an equal schedule, whose digest says
//     so.
//   - A job runs for min(run time, requested time), as the time limit would see to; who is
//     suspended for others, or requeued, as the configuration's PreemptMode says, runs as long in
//     all (preempt.go). Its wait is all that it did not run.
//   - Every start of a plan is taken by the state; one that is refused is an error of the replay,
//     never passed over.
//   - Memory is bounded by the trace: finished jobs and accounting events leave the state as they
//     would with gdbd there.
//
// It doesn't own what starts when (sched), what a command does to the facts (state), or
// configuration files (conf).
//
// Small files: table.go and progress.go (what is printed), digest.go, ends.go (ends in their
// order), workload.go (jobs), gpukinds.go and gpuuse.go (GPUs of traces and how they were used).
package sim
