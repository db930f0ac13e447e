// Package sim replays a workload through the scheduler that runs in production: `gbatch sim`.
//
// Jobs of a trace are submitted to a real state.State at the trace's own seconds, a real planner of
// package sched decides what starts, its plans are applied as a controller would apply them, and a
// job ends when the trace says so. There is no second model of the cluster and no second scheduler:
// only a virtual clock replaces the daemons.
//
// The stages of a replay: read.go opens a file and detects its format; swf.go, gpucsv.go, openb.go
// and acct.go read one format each into a Workload; machine.go makes the cluster's configuration,
// scheduler.go the policy by its name (orders.go has the published orders, configured.go what a
// configuration asks for); replay.go is the clock, preempt.go what preemption does to it;
// metrics.go computes the results, report.go, jobsout.go and plot.go show them. verb.go combines
// them for cmd/gbatch. fill.go fills a machine until its jobs have requested all of it; forecast.go
// runs a live cluster's dump forward, with changes of whatif.go.
//
// # Time within one second
//
// Traces count whole seconds, and the order of events within one second changes averages by several
// percent. Events chooses the order: Batch is one planning pass per second with events, after all
// ends and then all arrivals of that second. Single is one pass per event: arrivals first, in file
// order, then ends, in the order in which the jobs had started; a job that ends exactly at its time
// limit is gone before the first of these passes. With conservative backfill the due time of a kept
// reservation is an event too.
//
// exact_test.go compares both with published schedules of real logs; reference_test.go is the
// simplest planner that gives them, and random_test.go compares the production planner with it on
// random workloads. dominance_test.go holds the default rules against EASY, EASY-SJBF, WFP3 and
// UNICEF on slices of real logs and on the workloads of generators_test.go.
//
// # Invariants
//
//   - Equal workload, machine, scheduler, events and seed give an equal schedule, whose digest says
//     so.
//   - A job runs for min(run time, requested time), because of its time limit; a job that is
//     suspended or requeued by the configuration's PreemptMode runs as long in total (preempt.go).
//     Its wait is the rest of the time until its end.
//   - The state accepts every start of a plan; a refused one is an error of the replay and is never
//     ignored.
//   - Memory is bounded by the trace: finished jobs and accounting events leave the state as they
//     would with gdbd.
//
// It doesn't own scheduling decisions (sched), the effect of commands on the state (state), or
// configuration files (conf).
//
// Small files: table.go and progress.go (what is printed), digest.go, ends.go (ends in their
// order), workload.go (jobs), gpuuse.go (GPUs of traces and how they were used), elastic.go
// (--elastic-share).
package sim
