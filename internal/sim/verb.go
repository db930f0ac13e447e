package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"gbatch/internal/ask"
)

// Options are those of `gbatch sim`.
type Options struct {
	Trace     string
	Size      Size
	Conf      string // directory or file of a configuration
	Scheduler string // "": as configured with Conf, otherwise DefaultScheduler
	Estimates string // requested or actual; "": requested
	Events    string // batch or single; "": batch
	Seed      uint64
	Shake     int64 // shift each submission by 0 to so many seconds; 0: none
	JSON      bool
	JobsOut   string
	Compare   []string // schedulers, or configurations
	Plot      string
	Fill      bool
	Elastic   float64 // share of the jobs on whole nodes that are elastic
	Segment   int     // nodes of their segments
	FromState string
	WhatIf    []string

	Out io.Writer
	Err io.Writer // for progress; nil: none is shown
}

// gcPercent lets garbage grow to a few times a replay's own small memory: short-lived records are most of its work.
const gcPercent = 400

// maxShake bounds how far submissions are shifted, seconds.
const maxShake = 86400

// Main is `gbatch sim`.
func Main(ctx context.Context, o Options) error {
	if err := o.check(); err != nil {
		return err
	}
	if o.FromState != "" {
		return forecast(ctx, &o)
	}
	w, err := Open(o.Trace)
	if err != nil {
		return err
	}
	if o.Fill {
		return fill(ctx, &o, w)
	}
	if o.Estimates == "actual" {
		w.TrueEstimates()
	}
	if o.Shake > 0 {
		w.Shake(o.Seed, o.Shake)
	}
	setup, err := o.setup(w, o.Conf, o.Scheduler)
	if err != nil {
		return err
	}
	setups, labels := []Setup{setup}, []string{setup.Scheduler.Name}
	for _, other := range o.Compare {
		s, label, err := o.other(w, other)
		if err != nil {
			return err
		}
		setups, labels = append(setups, s), append(labels, label)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	results := make([]*Metrics, len(setups))
	outs := make([]*Outcome, len(setups))
	for i, s := range setups {
		bar := newBar(o.Err, labels[i])
		s.Progress = bar.show
		out, err := Replay(ctx, s)
		bar.clear()
		if err != nil {
			return err
		}
		outs[i], results[i] = out, out.Measure()
		if results[i].Estimates = o.Estimates; o.Estimates == "" {
			results[i].Estimates = "requested"
		}
		if o.Shake > 0 {
			results[i].Shake = &ShakeLines{o.Seed, o.Shake}
		}
	}
	if err := o.files(outs, results, labels); err != nil {
		return err
	}
	return o.print(w, results, labels)
}

// check refuses options that do not go together.
func (o *Options) check() error {
	switch {
	case o.Trace == "" && o.FromState == "":
		return errors.New("which workload: give a trace with --trace FILE, or a dump of a live cluster with " +
			"--from-state FILE")
	case o.Trace != "" && o.FromState != "":
		return errors.New("--trace and --from-state: one of them")
	case o.Conf != "" && o.Size != Size{}:
		return errors.New("--conf says itself which nodes there are: leave out --nodes, --cpus-per-node and --gpus-per-node")
	case o.Estimates != "" && o.Estimates != "requested" && o.Estimates != "actual":
		return fmt.Errorf("--estimates %s: requested (what the users asked for) or actual (what the jobs really ran)",
			o.Estimates)
	case o.Shake < 0 || o.Shake > maxShake:
		return fmt.Errorf("--shake %d: from 0 to %d seconds", o.Shake, maxShake)
	case !(o.Elastic >= 0 && o.Elastic <= 1):
		return fmt.Errorf("--elastic-share %g: a share from 0 to 1", o.Elastic)
	case o.Segment < 0 || o.Segment > ask.MaxCount:
		return fmt.Errorf("--elastic-segment %d: a number of nodes, or 0 for no segments", o.Segment)
	case o.Segment > 0 && (o.Elastic == 0 || o.Conf == ""):
		return errors.New("--elastic-segment is for elastic jobs in a network of blocks: give --elastic-share, and " +
			"--conf with a configuration that has blocks")
	case o.Elastic > 0 && o.Fill:
		return errors.New("--elastic-share and --fill: one of them; jobs that never end give nothing back")
	case len(o.WhatIf) > 0 && o.FromState == "":
		return errors.New("--what-if asks about a live cluster: give its dump with --from-state FILE (gcontrol dump state " +
			"FILE makes one); for a trace, --compare takes another configuration or scheduler")
	case !slices.Contains([]string{"", ".svg"}, strings.ToLower(filepath.Ext(o.Plot))):
		return fmt.Errorf("--plot %s: the plot is drawn as SVG: name it %s.svg", o.Plot,
			strings.TrimSuffix(o.Plot, filepath.Ext(o.Plot)))
	case o.FromState != "" && (len(o.Compare) > 0 || o.Plot != "" || o.Shake > 0 || o.Size != Size{} || o.Fill ||
		o.Elastic > 0):
		return errors.New("--from-state runs a live cluster's queue forward: --compare, --plot, --shake, --fill, " +
			"--elastic-share and the " +
			"size options are for traces; say what shall be different with --what-if or --conf")
	}
	_, err := ParseEvents(o.events())
	return err
}

func (o *Options) events() string {
	if o.Events == "" {
		return "batch"
	}
	return o.Events
}

// setup makes a replay's setup from the names of a configuration and a scheduler; either may be "".
func (o *Options) setup(w *Workload, dir, scheduler string) (Setup, error) {
	s := Setup{Work: w}
	var err error
	if s.Events, err = ParseEvents(o.events()); err != nil {
		return s, err
	}
	if dir != "" {
		s.Machine, _, err = FromConf(dir)
		if scheduler == "" {
			scheduler = Configured
		}
	} else {
		s.Machine, err = NewMachine(w, o.Size)
		if scheduler == "" {
			scheduler = DefaultScheduler
		}
	}
	if err != nil {
		return s, err
	}
	if scheduler == Configured && dir == "" {
		return s, errors.New("--scheduler configured: as which configuration says? Name it with --conf")
	}
	if s.ElasticShare, s.Seed = o.Elastic, o.Seed; o.Elastic > 0 && s.Machine.eachCPUs() == 0 {
		return s, errors.New("--elastic-share: jobs grow by whole nodes, and here they differ, or are one pool of " +
			"processors: give --nodes and --cpus-per-node or --gpus-per-node, or a --conf with equal nodes")
	}
	if s.Segment = int32(o.Segment); s.Segment > 0 && !s.Machine.hasBlocks() {
		return s, errors.New("--elastic-segment: segments lie in blocks, and not all partitions of the configuration are " +
			"placed by blocks (TopologyPlugin=topology/block, man gbatch.conf)")
	}
	s.Scheduler, err = NewScheduler(scheduler, s.Machine)
	return s, err
}

// other makes the setup of something to compare with: a configuration where there is one of that name, otherwise a
// scheduler.
func (o *Options) other(w *Workload, name string) (Setup, string, error) {
	if _, err := os.Stat(name); err == nil {
		s, err := o.setup(w, name, o.Scheduler)
		return s, filepath.Base(filepath.Clean(name)), err
	}
	s, err := o.setup(w, o.Conf, name)
	if err != nil {
		err = fmt.Errorf("--compare %s is no configuration's directory or file, and as a scheduler: %w", name, err)
	}
	return s, name, err
}

// files writes the requested files besides the report.
func (o *Options) files(outs []*Outcome, ms []*Metrics, labels []string) error {
	write := func(path string, f func(io.Writer) error) error {
		if path == "" {
			return nil
		}
		if path == "-" {
			return f(o.Out)
		}
		file, err := os.Create(path)
		if err != nil {
			return err
		}
		if err := errors.Join(f(file), file.Close()); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		return nil
	}
	return errors.Join(write(o.JobsOut, outs[0].WriteJobs),
		write(o.Plot, func(w io.Writer) error { return Plot(w, outs, ms, labels) }))
}

// print writes the report, to people or as JSON.
func (o *Options) print(w *Workload, results []*Metrics, labels []string) error {
	if o.JSON {
		enc := json.NewEncoder(o.Out)
		enc.SetIndent("", "  ")
		if len(results) == 1 {
			return enc.Encode(results[0])
		}
		return enc.Encode(struct {
			*Metrics
			Compared []*Metrics `json:"compared"`
		}{results[0], results[1:]})
	}
	name := strings.TrimSuffix(w.Name, ".gz")
	if len(results) > 1 {
		return Compare(o.Out, name+" on "+results[0].Machine, results, labels)
	}
	return results[0].Print(o.Out, name)
}
