package manage

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/format"
	"gbatch/internal/model"
	"gbatch/internal/plain"
	"gbatch/internal/proto"
)

// prioRow is one job in one of its partitions, or, with Weights, the line of configured weights.
type prioRow struct {
	*proto.PrioRow
	conf    *model.Priority
	cluster string
	weights bool
}

// prioLanguage has gprio's columns, with sprio's letters. key, if not nil, gives the value that -S sorts by.
func prioLanguage() *format.Language[prioRow] {
	// Weighted factors are whole numbers; the line of weights shows the weight itself.
	weighted := func(letter byte, heading string, get func(*prioRow) float64,
		weight func(*model.Priority) int64) format.Field[prioRow] {
		return format.Field[prioRow]{Letter: letter, Heading: heading, Get: func(r *prioRow) string {
			if r.weights {
				return strconv.FormatInt(weight(r.conf), 10)
			}
			return strconv.FormatFloat(math.Trunc(get(r)), 'f', 0, 64)
		}}
	}
	normal := func(letter byte, heading string, get func(*prioRow) float64,
		weight func(*model.Priority) int64) format.Field[prioRow] {
		return format.Field[prioRow]{Letter: letter, Heading: heading, Get: func(r *prioRow) string {
			if r.weights {
				return strconv.FormatInt(weight(r.conf), 10)
			}
			return strconv.FormatFloat(get(r), 'f', 7, 64)
		}}
	}
	text := func(letter byte, heading string, get func(*prioRow) string) format.Field[prioRow] {
		return format.Field[prioRow]{Letter: letter, Heading: heading, Get: func(r *prioRow) string {
			if r.weights {
				return ""
			}
			return get(r)
		}}
	}
	tres := func(r *prioRow, values []float64, digits int) string {
		var out []string
		for i, w := range r.conf.WeightTRES {
			x := float64(w.Micros) / float64(model.FactorOne)
			if !r.weights {
				if i >= len(values) {
					break
				}
				x = values[i]
			}
			if digits == 0 {
				x = math.Trunc(x)
			}
			if !r.weights && strconv.FormatFloat(x, 'f', digits, 64) == strconv.FormatFloat(0, 'f', digits, 64) {
				continue // only what counts
			}
			out = append(out, w.TRES+"="+strconv.FormatFloat(x, 'f', digits, 64))
		}
		return strings.Join(out, ",")
	}
	return &format.Language[prioRow]{Noun: "job", Fields: []format.Field[prioRow]{
		{Letter: 'i', Heading: "JOBID", Get: func(r *prioRow) string {
			if r.weights {
				return "Weights"
			}
			return r.JobText
		}},
		text('r', "PARTITION", func(r *prioRow) string { return r.PartName }),
		text('u', "USER", func(r *prioRow) string { return r.User }),
		text('o', "ACCOUNT", func(r *prioRow) string { return r.PrioRow.Account }),
		text('c', "CLUSTER", func(r *prioRow) string { return r.cluster }),
		text('Y', "PRIORITY", func(r *prioRow) string { return strconv.FormatUint(uint64(r.PrioRow.Priority), 10) }),
		text('y', "PRIORITY", func(r *prioRow) string {
			return strconv.FormatFloat(float64(r.PrioRow.Priority)/math.MaxUint32, 'f', 14, 64)
		}),
		weighted('S', "SITE", func(r *prioRow) float64 { return float64(r.Site) }, func(*model.Priority) int64 { return 1 }),
		weighted('A', "AGE", func(r *prioRow) float64 { return r.Age }, func(p *model.Priority) int64 { return p.WeightAge }),
		weighted('B', "ASSOC", func(r *prioRow) float64 { return r.Assoc },
			func(p *model.Priority) int64 { return p.WeightAssoc }),
		weighted('F', "FAIRSHARE", func(r *prioRow) float64 { return r.FairShare },
			func(p *model.Priority) int64 { return p.WeightFairShare }),
		weighted('J', "JOBSIZE", func(r *prioRow) float64 { return r.JobSize },
			func(p *model.Priority) int64 { return p.WeightJobSize }),
		weighted('P', "PARTITION", func(r *prioRow) float64 { return r.Partition },
			func(p *model.Priority) int64 { return p.WeightPartition }),
		weighted('Q', "QOS", func(r *prioRow) float64 { return r.QOS }, func(p *model.Priority) int64 { return p.WeightQOS }),
		text('N', "NICE", func(r *prioRow) string { return strconv.FormatInt(r.Nice, 10) }),
		text('n', "QOSNAME", func(r *prioRow) string { return r.QOSName }),
		{Letter: 'T', Heading: "TRES", Get: func(r *prioRow) string { return tres(r, r.TRES, 0) }},
		{Letter: 't', Heading: "TRES", Get: func(r *prioRow) string {
			if r.weights {
				return ""
			}
			return tres(r, r.TRESN, 2)
		}},
		normal('a', "AGE", func(r *prioRow) float64 { return r.AgeN },
			func(p *model.Priority) int64 { return p.WeightAge }),
		normal('b', "ASSOC", func(r *prioRow) float64 { return r.AssocN },
			func(p *model.Priority) int64 { return p.WeightAssoc }),
		normal('f', "FAIRSHARE", func(r *prioRow) float64 { return r.FairN },
			func(p *model.Priority) int64 { return p.WeightFairShare }),
		normal('j', "JOBSIZE", func(r *prioRow) float64 { return r.SizeN },
			func(p *model.Priority) int64 { return p.WeightJobSize }),
		normal('p', "PARTITION", func(r *prioRow) float64 { return r.PartN },
			func(p *model.Priority) int64 { return p.WeightPartition }),
		normal('q', "QOS", func(r *prioRow) float64 { return r.QOSN },
			func(p *model.Priority) int64 { return p.WeightQOS }),
	}}
}

// prioLetters are the letters that -S accepts: those of -o.
func prioLetters() string {
	var letters []byte
	for _, f := range prioLanguage().Fields {
		letters = append(letters, f.Letter)
	}
	return string(letters)
}

// prio is one call of gprio.
type prio struct {
	*env.Env
	rq                                proto.PrioRequest
	template, sort                    string
	clusters                          []string
	noHeader, long, normal, onlyGiven bool
	verbose                           int
}

// Gprio lists the priority factors of pending jobs.
func Gprio(e *env.Env) int {
	s := &prio{Env: e}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(s.options(), getopt.HelpOptions(0)...),
		EnvPrefix: "SPRIO",
		About: "List waiting jobs with their priorities and the factors that they come from, one line for each of a job's " +
			"partitions. Held jobs have no priority and are left out."})
	operands, err := p.Parse(e.Args, e.Lookup)
	switch {
	case err != nil:
		return e.Usage(p, err)
	case len(operands) > 0:
		e.Errorf("Unrecognized option: %s; name jobs with --jobs", operands[0])
		return 1
	}
	s.listVerbose(p)
	if err := s.print(); err != nil {
		e.Errorf("%s", env.Text(err))
		return 1
	}
	return 0
}

// listVerbose prints what -v prints in Slurm: some options, given or not.
func (s *prio) listVerbose(p *getopt.Parser) {
	if s.verbose == 0 {
		return
	}
	given, byJob := map[string]string{}, 0
	for _, d := range p.Defined() {
		given[d.Name] = plain.Line(d.Value)
	}
	if given["jobs"] != "" {
		byJob = 1
	}
	rule := strings.Repeat("-", 29)
	fmt.Fprintln(s.Stdout, rule)
	for _, line := range [][2]string{{"format", "format"}, {"job_flag", ""}, {"jobs", "jobs"}, {"partition", "partition"},
		{"users", "user"}} {
		value := cmp.Or(given[line[1]], "(null)")
		if line[1] == "" {
			value = strconv.Itoa(byJob)
		}
		fmt.Fprintf(s.Stdout, "%-10s = %s\n", line[0], value)
	}
	fmt.Fprintf(s.Stdout, "%-10s = %d\n%s\n\n\n", "verbose", s.verbose, rule)
}

func (s *prio) options() []getopt.Option {
	return []getopt.Option{
		{Name: "noheader", Short: 'h', Help: "print no header", Set: getopt.Flag(&s.noHeader)},
		{Name: "jobs", Short: 'j', Arg: getopt.Required, Metavar: "ids", Help: "only these jobs", Set: func(v string) error {
			refs, err := env.ParseJobRefs(v)
			s.rq.Filter.Jobs = append(s.rq.Filter.Jobs, refs...)
			return err
		}},
		{Name: "long", Short: 'l', Help: "every factor, and the user", Set: getopt.Flag(&s.long)},
		{Name: "norm", Short: 'n', Help: "factors before they are weighted, 0 to 1", Set: getopt.Flag(&s.normal)},
		{Name: "format", Short: 'o', Arg: getopt.Required, Metavar: "format", Env: "_FORMAT",
			Help: "what to print, as in '%.15i %9r %.10Y'", Set: getopt.Text(&s.template)},
		{Name: "partition", Short: 'p', Arg: getopt.Required, Metavar: "names", Help: "only these partitions",
			Set: getopt.List(&s.rq.Filter.Partitions)},
		{Name: "sort", Short: 'S', Arg: getopt.Required, Metavar: "letters",
			Help: "order, as in 'u,-Y'; letters are the format's", Set: getopt.Text(&s.sort)},
		{Name: "user", Aliases: []string{"users"}, Short: 'u', Arg: getopt.Required, Metavar: "names",
			Help: "only these users", Set: func(v string) error {
				users, err := env.ParseUsers(v)
				if err != nil {
					return &getopt.TextError{Text: err.Error()}
				}
				s.rq.Filter.Users = append(s.rq.Filter.Users, users...)
				return nil
			}},
		{Name: "weights", Short: 'w', Help: "the configured weights, and no jobs", Set: getopt.Flag(&s.onlyGiven)},
		{Name: "clusters", Aliases: []string{"cluster"}, Short: 'M', Arg: getopt.Required, Metavar: "names",
			Env: "SLURM_CLUSTERS", Help: "this cluster's name, or all", Set: env.Clusters(&s.clusters)},
		{Name: "local", Hidden: true, Note: "there is one cluster", Set: env.Ignored},
		{Name: "federation", Hidden: true, Note: "there is one cluster", Set: env.Ignored},
		{Name: "sibling", Hidden: true, Note: "there is one cluster", Set: env.Ignored},
		{Name: "verbose", Short: 'v', Help: "print the options first", Set: getopt.Count(&s.verbose)},
	}
}

// columns gives the format: one column for each factor that has a weight.
func (s *prio) columns(p *model.Priority) string {
	if s.template != "" {
		return s.template
	}
	if s.long && s.normal {
		return "%.15i %9r %.8u %10y %10a %10b %10f %10j %10p %10q %20t"
	}
	if s.long {
		return "%.15i %9r %.8u %.10Y %.10S %.10A %.10B %.10F %.10J %.10P %.10Q %.11N %.20T"
	}
	out := "%.15i %9r"
	if len(s.rq.Filter.Users) > 0 {
		out += " %.8u"
	}
	if s.normal {
		out += " %10y"
	} else {
		out += " %.10Y %.10S"
	}
	for _, c := range []struct {
		weight       int64
		whole, small string
	}{{p.WeightAge, "A", "a"}, {p.WeightAssoc, "B", "b"}, {p.WeightFairShare, "F", "f"}, {p.WeightJobSize, "J", "j"},
		{p.WeightPartition, "P", "p"}, {p.WeightQOS, "Q", "q"}} {
		switch {
		case c.weight == 0:
		case s.normal:
			out += " %10" + c.small
		default:
			out += " %.10" + c.whole
		}
	}
	switch {
	case len(p.WeightTRES) == 0:
	case s.normal:
		out += " %20t"
	default:
		out += " %.20T"
	}
	return out
}

func (s *prio) print() error {
	keys, err := format.ParseSort(s.sort, prioLetters())
	if err != nil {
		return err
	}
	c, err := s.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := s.CheckClusters(c, s.clusters); err != nil {
		return err
	}
	conf, rows := &model.Priority{}, []prioRow(nil)
	err = c.Stream(proto.KindPrio, &s.rq, func(body []byte) error {
		var chunk proto.PrioChunk
		if err := c.Decode(body, &chunk); err != nil {
			return err
		}
		conf = &chunk.Weights
		for i := range chunk.Rows {
			rows = append(rows, prioRow{PrioRow: &chunk.Rows[i]})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if !conf.Multifactor {
		fmt.Fprintln(s.Stderr,
			"You are not running a supported priority plugin\n(priority/basic).\nOnly 'priority/multifactor' is supported.")
		return nil
	}
	if s.onlyGiven {
		rows = []prioRow{{PrioRow: &proto.PrioRow{}, weights: true}}
	}
	cluster := ""
	p, err := prioLanguage().Template(s.columns(conf))
	if err = s.UnknownFields(err); err != nil {
		return err
	}
	for f := range p.Fields {
		if f.Letter == 'c' && cluster == "" {
			if cluster, err = env.ClusterName(c); err != nil {
				return err
			}
		}
	}
	for i := range rows {
		rows[i].conf, rows[i].cluster = conf, cluster
	}
	if len(rows) == 0 && (len(s.rq.Filter.Jobs) > 0 || len(s.rq.Filter.Users) > 0) {
		fmt.Fprintln(s.Stdout, "Unable to find jobs matching user/id(s) specified")
		return nil
	}
	sortPrios(rows, keys)
	return p.Write(s.Stdout, rows, !s.noHeader)
}

// sortPrios orders lines by keys, then by job number and partition.
func sortPrios(rows []prioRow, keys []format.SortKey) {
	number := map[byte]func(*prioRow) float64{
		'i': func(r *prioRow) float64 { return float64(r.Job) },
		'Y': func(r *prioRow) float64 { return float64(r.PrioRow.Priority) },
		'S': func(r *prioRow) float64 { return float64(r.Site) }, 'A': func(r *prioRow) float64 { return r.Age },
		'B': func(r *prioRow) float64 { return r.Assoc },
		'F': func(r *prioRow) float64 { return r.FairShare }, 'J': func(r *prioRow) float64 { return r.JobSize },
		'P': func(r *prioRow) float64 { return r.Partition },
		'Q': func(r *prioRow) float64 { return r.QOS }, 'N': func(r *prioRow) float64 { return float64(r.Nice) },
		'T': func(r *prioRow) float64 { return sum(r.TRES) },
	}
	word := map[byte]func(*prioRow) string{'r': func(r *prioRow) string { return r.PartName },
		'u': func(r *prioRow) string { return r.User },
		'o': func(r *prioRow) string { return r.PrioRow.Account }, 'n': func(r *prioRow) string { return r.QOSName },
		'c': func(r *prioRow) string { return r.cluster }}
	slices.SortStableFunc(rows, func(a, b prioRow) int {
		for _, k := range keys {
			n, w := number[k.Letter], word[k.Letter]
			if n == nil && w == nil {
				n = number[k.Letter&^0x20] // normalized factors sort like the weighted ones
			}
			order := 0
			if w != nil {
				order = strings.Compare(w(&a), w(&b))
			} else {
				order = cmp.Compare(n(&a), n(&b))
			}
			if k.Down {
				order = -order
			}
			if order != 0 {
				return order
			}
		}
		return cmp.Compare(a.Job, b.Job)
	})
}

func sum(list []float64) (s float64) {
	for _, x := range list {
		s += x
	}
	return s
}
