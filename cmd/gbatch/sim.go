package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"gbatch/internal/sim"
)

func simCommand() *cobra.Command {
	var o sim.Options
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Replay a workload through the scheduler, without a cluster",
		Long: "Replay a workload through the scheduler that gctld runs, under a virtual clock, and say how long jobs " +
			"waited and how\n" +
			"full the machine was. A trace is in the Standard Workload Format, a CSV of GPU jobs or pods, or what gacct -P " +
			"prints;\n" +
			"each may be gzipped. With --from-state a live cluster's queue is run forward instead.",
		Example: "  gbatch sim --trace KTH-SP2.swf.gz --scheduler easy\n" +
			"  gbatch sim --trace KTH-SP2.swf.gz --scheduler easy --compare easy-sjbf --plot kth.svg\n" +
			"  gbatch sim --trace jobs.csv --conf /etc/gbatch --compare /tmp/trial\n" +
			"  gcontrol dump state now.state && gbatch sim --from-state now.state --what-if 'add=4:gpu1'",
		Args: noOperands,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = os.Stdout
			if info, err := os.Stderr.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
				o.Err = os.Stderr
			}
			err := sim.Main(cmd.Context(), o)
			if errors.Is(err, context.Canceled) {
				return errors.New("interrupted; there is no result before the replay is through")
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Trace, "trace", "", "`FILE` with the workload")
	f.IntVar(&o.Size.Nodes, "nodes", 0,
		"run it on `N` equal nodes (default: the machine that the trace names, as one pool of processors)")
	f.IntVar(&o.Size.CPUsPerNode, "cpus-per-node", 0, "CPUs of each node; without --nodes, of the one pool")
	f.IntVar(&o.Size.GPUsPerNode, "gpus-per-node", 0, "GPUs of each node")
	f.StringVar(&o.Conf, "conf", "", "run it on the cluster of the configuration in `DIR`")
	f.StringVar(&o.Scheduler, "scheduler", "", "`NAME` of the scheduler: "+sim.SchedulerNames()+
		" (default configured with --conf, otherwise "+sim.DefaultScheduler+")")
	f.StringVar(&o.Estimates, "estimates", "requested",
		"time limits as `requested` by the users, or actual: what each job really ran")
	f.StringVar(&o.Events, "events", "batch", "one planning pass per second (`batch`), or one per event (single)")
	f.Uint64Var(&o.Seed, "seed", 1, "`seed` of what is drawn at random: --shake, --fill, --elastic-share")
	f.Int64Var(&o.Shake, "shake", 0, "shift each submission by 0 to so many `seconds`")
	f.Float64Var(&o.Elastic, "elastic-share", 0,
		"`SHARE` of the jobs on whole nodes, from 0 to 1, that are elastic: from half to twice their nodes, the same work")
	f.IntVar(&o.Segment, "elastic-segment", 0,
		"with --conf of a network of blocks: elastic jobs of at least `NODES` nodes have segments of so many")
	f.BoolVar(&o.JSON, "json", false, "print JSON")
	f.StringVar(&o.JobsOut, "jobs-out", "", "write a CSV line for each job to `FILE`")
	f.StringSliceVar(&o.Compare, "compare", nil,
		"run another configuration's `DIR` or another scheduler as well, and print both side by side")
	f.StringVar(&o.Plot, "plot", "", "draw load, queue and slowdown into `FILE.svg`")
	f.BoolVar(&o.Fill, "fill", false,
		"no job ends; draw jobs from the trace until they have asked for all GPUs, and say how many were allocated")
	f.StringVar(&o.FromState, "from-state", "", "run the queue in `FILE`, made by gcontrol dump state, forward")
	f.StringArrayVar(&o.WhatIf, "what-if", nil,
		"with --from-state: what shall be different, as `KEY=VALUE`; may be given several times")
	return cmd
}
