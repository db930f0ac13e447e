package acct

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/client"
	"gbatch/internal/clustertext"
	"gbatch/internal/format"
	"gbatch/internal/hostlist"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/walltime"
)

// history.go is gstat --history: what was measured over time, of jobs, GPUs, nodes, partitions, accounts, QOS and the
// cluster. gdbd has it.

// past is what --history and the options beside it ask for.
type past struct {
	on         bool
	start, end model.Time
	stepS      int64
	gpus       bool
	of         proto.HistoryOf // 0: jobs, if there are any, else the cluster
	names      []string
	used       string // the option that only --history takes
}

// pastSpan is how far --history looks back.
const pastSpan = time.Hour

func (s *statCall) pastOptions() []getopt.Option {
	const group = "With --history"
	set := func(name string, f func(v string) error) func(string) error {
		return func(v string) error { s.past.used = name; return f(v) }
	}
	names := func(of proto.HistoryOf) func(string) error {
		return func(v string) error {
			if s.past.of != 0 && s.past.of != of {
				return &getopt.TextError{Text: "the history of one kind at a time: give one of --nodelist, --partition, " +
					"--accounts, --qos"}
			}
			s.past.of = of
			if of == proto.HistoryNode {
				list, err := hostlist.Expand(v)
				if err != nil {
					return err
				}
				s.past.names = append(s.past.names, list...)
				return nil
			}
			s.past.names = append(s.past.names, strings.Split(v, ",")...)
			return nil
		}
	}
	moment := func(to *model.Time) func(string) error {
		return func(v string) error {
			t, err := walltime.ParsePastDate(v, time.Now())
			*to = model.Time(t.UnixMilli())
			return err
		}
	}
	return []getopt.Option{
		{Name: "history", Help: "what was measured over time: of the jobs, or without jobs of the cluster",
			Set: getopt.Flag(&s.past.on)},
		{Name: "gpus", Short: 'G', Group: group, Help: "of single GPUs: those of the nodes, or those that the jobs had",
			Set: set("--gpus", func(string) error { s.past.gpus = true; return nil })},
		{Name: "nodelist", Short: 'N', Arg: getopt.Required, Group: group, Metavar: "nodes", Help: "of these nodes",
			Set: set("--nodelist", names(proto.HistoryNode))},
		{Name: "partition", Short: 'r', Arg: getopt.Required, Group: group, Metavar: "names", Help: "of these partitions",
			Set: set("--partition", names(proto.HistoryPartition))},
		{Name: "accounts", Aliases: []string{"account"}, Short: 'A', Arg: getopt.Required, Group: group, Metavar: "names",
			Help: "of the jobs of these accounts", Set: set("--accounts", names(proto.HistoryAccount))},
		{Name: "qos", Short: 'q', Arg: getopt.Required, Group: group, Metavar: "names",
			Help: "of the jobs of these QOS", Set: set("--qos", names(proto.HistoryQOS))},
		{Name: "starttime", Short: 'S', Arg: getopt.Required, Group: group, Metavar: "time",
			Help: "from then on, as in gacct; the last hour unless given",
			Set:  set("--starttime", moment(&s.past.start))},
		{Name: "endtime", Short: 'E', Arg: getopt.Required, Group: group, Metavar: "time", Help: "until then",
			Set: set("--endtime", moment(&s.past.end))},
		{Name: "interval", Arg: getopt.Required, Group: group, Metavar: "n",
			Help: "a line for n minutes, with their mean; as fine as it is kept unless given",
			Set: set("--interval", func(v string) error {
				n, err := strconv.ParseInt(v, 10, 32)
				if err != nil || n < 1 {
					return &getopt.TextError{Text: "--interval is a number of minutes: " + v}
				}
				s.past.stepS = n * 60
				return nil
			})},
	}
}

// history asks and prints.
func (s *statCall) history() int {
	p := &s.past
	rq := proto.HistoryRequest{Of: p.of, Names: p.names, Start: p.start, End: p.end, StepS: p.stepS}
	switch {
	case s.pids || s.all || s.fields != "":
		s.Errorf("--history has its own columns: leave out --pidformat, --allsteps and --format")
		return 1
	case p.of != 0 && len(s.wants) > 0:
		s.Errorf("--history of jobs, or of something else: give no --jobs beside --nodelist, --partition, --accounts or " +
			"--qos")
		return 1
	case p.gpus && p.of != 0 && p.of != proto.HistoryNode:
		s.Errorf("--gpus takes --jobs or --nodelist")
		return 1
	}
	if rq.Start == 0 {
		rq.Start = model.Time(time.Now().Add(-pastSpan).UnixMilli())
	}
	c, err := s.Connect()
	if err != nil {
		s.Errorf("%s", env.Text(err))
		return 1
	}
	defer c.Close()
	var list []proto.HistorySeries
	more := false
	ask := func() error {
		return c.Stream(proto.KindHistory, &rq, func(body []byte) error {
			var part proto.HistoryReply
			if err := c.Decode(body, &part); err != nil {
				return err
			}
			list, more = append(list, part.List...), more || part.More
			return nil
		})
	}
	labels := map[string]string{}
	switch {
	case len(s.wants) > 0:
		var ids []string
		if ids, err = s.pastJobs(c, labels); err != nil {
			break
		}
		rq.Of, rq.Names = proto.HistoryJob, ids
		if p.gpus {
			rq.Of, rq.Names = proto.HistoryGPU, nil
			for _, id := range ids {
				n, _ := strconv.ParseUint(id, 10, 32) // it was made of a number
				if rq.Job = model.JobID(n); err == nil {
					err = ask()
				}
			}
			break
		}
		err = ask()
	case p.gpus:
		rq.Of = proto.HistoryGPU
		for i := range rq.Names {
			rq.Names[i] += "/"
		}
		err = ask()
	default:
		rq.Of = cmp.Or(rq.Of, proto.HistoryCluster)
		err = ask()
	}
	if err != nil {
		s.Errorf("%s", env.Text(err))
		return 1
	}
	return s.showPast(rq.Of, list, labels, more)
}

// pastJobs gives the numbers of the jobs that were asked for. Those that the controllers have forgotten go by their
// own.
func (s *statCall) pastJobs(c *client.Client, labels map[string]string) (ids []string, err error) {
	for _, w := range s.wants {
		if w.step != "" {
			return nil, errors.New("--history is of whole jobs: give no step")
		}
		rq := &proto.JobsRequest{}
		rq.Filter.Jobs, rq.Filter.States = []model.JobRef{w.ref}, model.JobStates()
		found := 0
		err := c.Stream(proto.KindJobs, rq, func(body []byte) error {
			var chunk proto.JobsChunk
			if err := c.Decode(body, &chunk); err != nil {
				return err
			}
			for _, j := range chunk.Jobs {
				id := strconv.FormatUint(uint64(j.ID), 10)
				labels[id] = jobtext.JobID(j)
				if found++; !slices.Contains(ids, id) {
					ids = append(ids, id)
				}
			}
			return nil
		})
		var said *rpc.Error
		if err != nil && (!errors.As(err, &said) || said.Code != proto.CodeInvalidJob) {
			return nil, err
		}
		if found == 0 {
			if w.ref.Task != model.NoTask {
				return nil, errors.New("the controllers have forgotten " + jobtext.RefText(w.ref) +
					": give the JobIDRaw that gacct shows")
			}
			ids = append(ids, strconv.FormatUint(uint64(w.ref.Job), 10))
		}
	}
	return ids, nil
}

var pastTitles = map[proto.HistoryOf]string{proto.HistoryCluster: "Cluster", proto.HistoryPartition: "Partition",
	proto.HistoryAccount: "Account", proto.HistoryQOS: "QOS", proto.HistoryNode: "Node", proto.HistoryGPU: "GPU",
	proto.HistoryJob: "JobID"}

// showPast prints the table.
func (s *statCall) showPast(of proto.HistoryOf, list []proto.HistorySeries, labels map[string]string, more bool) int {
	fields := of.Shown()
	head := []string{pastTitles[of], "Time"}
	for _, f := range fields {
		head = append(head, clustertext.HistoryTitle(f.Name))
	}
	if of == proto.HistoryCluster {
		head = head[1:]
	}
	var rows [][]string
	if !s.noHeader {
		rows = append(rows, head)
		if !s.style.Parsable {
			rows = append(rows, nil)
		}
	}
	for i := range list {
		for k := range list[i].Points {
			pt := &list[i].Points[k]
			row := []string{cmp.Or(labels[list[i].Name], list[i].Name), s.Stamp(pt.At, "")}
			for n, f := range fields {
				v := int64(-1)
				if n < len(pt.Values) {
					v = pt.Values[n]
				}
				row = append(row, clustertext.HistoryValue(f.Name, v, s.view.NoConvert))
			}
			if of == proto.HistoryCluster {
				row = row[1:]
			}
			rows = append(rows, row)
		}
	}
	if _, err := s.Stdout.Write(s.table(head, rows, of)); err != nil {
		return 1
	}
	if len(list) == 0 {
		s.Errorf("nothing was measured in that time: minutes are kept for a day, means of ten minutes for 30 days, " +
			"and jobs are in it from their first whole minute on")
	}
	if more {
		s.Errorf("there are more; name fewer with --nodelist")
	}
	return 0
}

// table lays rows out; an empty one is a rule.
func (s *statCall) table(head []string, rows [][]string, of proto.HistoryOf) []byte {
	var b []byte
	if s.style.Parsable {
		for _, r := range rows {
			for i, text := range r {
				if i > 0 {
					b = append(b, format.DefaultDelimiter...)
				}
				b = append(b, format.Parted(text, format.DefaultDelimiter)...)
			}
			if !s.style.NoTrailing {
				b = append(b, '|')
			}
			b = append(b, '\n')
		}
		return b
	}
	width := make([]int, len(head))
	for _, r := range rows {
		for i, v := range r {
			width[i] = max(width[i], len(v))
		}
	}
	left := 2 // name and time
	if of == proto.HistoryCluster {
		left = 1
	}
	for _, r := range rows {
		for i := range head {
			v, pad := "", byte(' ')
			if r == nil {
				pad = '-'
			} else {
				v = r[i]
			}
			space := slices.Repeat([]byte{pad}, width[i]-len(v))
			if i < left {
				b = append(append(b, v...), space...)
			} else {
				b = append(append(b, space...), v...)
			}
			b = append(b, ' ')
		}
		b[len(b)-1] = '\n'
	}
	return b
}
