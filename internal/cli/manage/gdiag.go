package manage

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/slurmjson"
)

// diag is one call of gdiag.
type diag struct {
	*env.Env
	reset    bool
	sort     func(a, b proto.DiagRPC) int // nil: the most frequent first
	json     string
	clusters []string
}

// Gdiag shows the leader's statistics in sdiag's words and layout, which exporters read with regular expressions.
func Gdiag(e *env.Env) int {
	d := &diag{Env: e}
	by := func(f func(a, b proto.DiagRPC) int) func(string) error {
		return func(string) error { d.sort = f; return nil }
	}
	options := []getopt.Option{
		{Name: "all", Short: 'a', Help: "show everything (it does anyway)", Set: env.Ignored},
		{Name: "reset", Short: 'r', Help: "set the counters to 0 (operators)", Set: getopt.Flag(&d.reset)},
		{Name: "sort-by-id", Short: 'i', Help: "order requests by their numbers",
			Set: by(func(a, b proto.DiagRPC) int { return cmp.Compare(a.ID, b.ID) })},
		{Name: "sort-by-time", Short: 't', Help: "order requests by the time they took in all",
			Set: by(func(a, b proto.DiagRPC) int { return cmp.Compare(b.SumUS, a.SumUS) })},
		{Name: "sort-by-time2", Short: 'T', Help: "order requests by the time that one took",
			Set: by(func(a, b proto.DiagRPC) int { return cmp.Compare(mean(b.SumUS, b.Count), mean(a.SumUS, a.Count)) })},
		{Name: "json", Arg: getopt.Optional, Metavar: "version",
			Help: "write JSON, in the shape of Slurm's data_parser of that version", Set: func(v string) (err error) {
				d.json, err = slurmjson.ParseVersion(v)
				return err
			}},
		{Name: "yaml", Arg: getopt.Optional, Refused: "use --json"},
		{Name: "clusters", Aliases: []string{"cluster"}, Short: 'M', Arg: getopt.Required, Metavar: "name",
			Env: "SLURM_CLUSTERS", Help: "this cluster's name", Set: getopt.List(&d.clusters)},
	}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(options, getopt.HelpOptions('h')...),
		About: "Show what the controller that leads has done: jobs, scheduling passes, requests."})
	words, err := p.Parse(e.Args, e.Lookup)
	switch {
	case err != nil:
		return e.Usage(p, err)
	case len(words) > 0:
		e.Errorf("Unrecognized option: %s", words[0])
		return 1
	}
	if err := d.print(); err != nil {
		fmt.Fprintf(e.Stderr, "slurm_get_statistics: %s\n", env.Text(err))
		return 1
	}
	return 0
}

func mean(sum, n int64) int64 { return sum / max(1, n) }

func (d *diag) print() error {
	c, err := d.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := d.CheckClusters(c, d.clusters); err != nil {
		return err
	}
	var r proto.DiagReply
	if d.reset {
		if err := c.Call(proto.KindDiagReset, &proto.Empty{}, &r); err != nil {
			return err
		}
		fmt.Fprintln(d.Stdout, "Reset scheduling statistics")
		return nil
	}
	if err := c.Call(proto.KindDiag, &proto.Empty{}, &r); err != nil {
		return err
	}
	if d.sort != nil {
		slices.SortStableFunc(r.ByType, d.sort)
		slices.SortStableFunc(r.ByUser, d.sort)
	}
	if d.json != "" {
		cluster, err := env.ClusterName(c)
		if err != nil {
			return err
		}
		return d.printJSON(&r, cluster)
	}
	writeDiag(d.Stdout, &r)
	return nil
}

// writeDiag prints the statistics. Lines about means are there only where there is something to divide by, as in sdiag.
func writeDiag(w io.Writer, r *proto.DiagReply) {
	p := func(format string, a ...any) { fmt.Fprintf(w, format, a...) } // gcli's flush tells of errors
	at := func(t model.Time) string {
		return fmt.Sprintf("%s (%d)", time.UnixMilli(int64(t)).Format("Mon Jan 02 15:04:05 2006"), t.Seconds())
	}
	rule := "*******************************************************\n"
	p("%ssdiag output at %s\nData since      %s\n%s", rule, at(r.Now), at(r.Since), rule)
	p("Server thread count:  %d\nAgent queue size:     %d\nAgent count:          0\nAgent thread count:   0\n"+
		"DBD Agent queue size: %d\n\n", r.Threads, r.AgentQueue, r.DbdQueue)
	p("Jobs submitted: %d\nJobs started:   %d\nJobs completed: %d\nJobs canceled:  %d\nJobs failed:    %d\n\n",
		r.Submitted, r.Started, r.Completed, r.Canceled, r.Failed)
	p("Job states ts:  %s\nJobs pending:   %d\nJobs running:   %d\n\n", at(r.Now), r.Pending, r.Running)
	m := &r.Main
	p("Main schedule statistics (microseconds):\n\tLast cycle:   %d\n\tMax cycle:    %d\n\tTotal cycles: %d\n", m.LastUS,
		m.MaxUS, m.Count)
	if m.Count > 0 {
		p("\tMean cycle:   %d\n\tMean depth cycle:  %d\n", mean(m.SumUS, m.Count), mean(m.DepthSum, m.Count))
	}
	if minutes := int64(r.Now-r.Since) / 60000; minutes > 0 {
		p("\tCycles per minute: %d\n", m.Count/minutes)
	}
	p("\tLast queue length: %d\n\n", m.QueueLast)
	b := &r.Backfill
	p("Backfilling stats\n\tTotal backfilled jobs (since last slurm start): %d\n"+
		"\tTotal backfilled jobs (since last stats cycle start): %d\n", r.BackfilledAll, r.Backfilled)
	p("\tTotal backfilled heterogeneous job components: 0\n\tTotal cycles: %d\n", b.Count)
	if b.At > 0 {
		p("\tLast cycle when: %s\n", at(b.At))
	} else {
		p("\tLast cycle when: N/A\n")
	}
	p("\tLast cycle: %d\n\tMax cycle:  %d\n", b.LastUS, b.MaxUS)
	if b.Count > 0 {
		p("\tMean cycle: %d\n", mean(b.SumUS, b.Count))
	}
	p("\tLast depth cycle: %d\n\tLast depth cycle (try sched): %d\n", b.DepthLast, r.TryDepthLast)
	if b.Count > 0 {
		p("\tDepth Mean: %d\n\tDepth Mean (try depth): %d\n", mean(b.DepthSum, b.Count), mean(r.TryDepthSum, b.Count))
	}
	p("\tLast queue length: %d\n", b.QueueLast)
	if b.Count > 0 {
		p("\tQueue length mean: %d\n", mean(b.QueueSum, b.Count))
	}
	p("\tLast table size: %d\n", r.TableLast)
	if b.Count > 0 {
		p("\tMean table size: %d\n", mean(r.TableSum, b.Count))
	}
	p("\nReplicated log\n\tQueue length: %d\n", r.RaftQueue)
	for _, kv := range r.Counters {
		p("\t%s: %s\n", kv.Key, kv.Value)
	}
	p("\nRemote Procedure Call statistics by message type\n")
	for _, c := range r.ByType {
		p("\t%-40s(%5d) count:%-6d ave_time:%-6d total_time:%d\n", c.Name, c.ID, c.Count, mean(c.SumUS, c.Count), c.SumUS)
	}
	p("\nRemote Procedure Call statistics by user\n")
	for _, c := range r.ByUser {
		p("\t%-16s(%8d) count:%-6d ave_time:%-6d total_time:%d\n", c.Name, c.ID, c.Count, mean(c.SumUS, c.Count), c.SumUS)
	}
	p("\nPending RPC statistics\n\tNo pending RPCs\n")
}
