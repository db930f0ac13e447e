package manage

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/clustertext"
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
		{Name: "all", Short: 'a', Help: "show everything; accepted, without effect", Set: env.Ignored},
		{Name: "reset", Short: 'r', Help: "set the counters to 0 (operators)", Set: getopt.Flag(&d.reset)},
		{Name: "sort-by-id", Short: 'i', Help: "order requests by their numbers",
			Set: by(func(a, b proto.DiagRPC) int { return cmp.Compare(a.ID, b.ID) })},
		{Name: "sort-by-time", Short: 't', Help: "order requests by the time they took in all",
			Set: by(func(a, b proto.DiagRPC) int { return cmp.Compare(b.SumUS, a.SumUS) })},
		{Name: "sort-by-time2", Short: 'T', Help: "order requests by the time that one took",
			Set: by(func(a, b proto.DiagRPC) int { return cmp.Compare(clustertext.MeanUS(&b), clustertext.MeanUS(&a)) })},
		d.JSON("", "JSON, in Slurm's shape", &d.json),
		d.YAML("", &d.json),
		{Name: "clusters", Aliases: []string{"cluster"}, Short: 'M', Arg: getopt.Required, Metavar: "name",
			Env: "SLURM_CLUSTERS", Help: "this cluster's name", Set: env.Clusters(&d.clusters)},
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
		j := slurmjson.New(d.ListOut(), d.json)
		j.Open("", '{')
		slurmjson.Write(j, "statistics", clustertext.StatisticsJSON(), &r)
		return d.JSONTail(j, cluster, r.Now)
	}
	_, err = io.WriteString(d.Stdout, clustertext.StatisticsText(&r))
	return err
}
