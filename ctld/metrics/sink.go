package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// sink gathers one scrape's families. It makes samples by hundreds, because a cluster has tens of thousands of them; a
// registry would look at each several times. What a registry checks, a test checks.
type sink struct {
	list   []*dto.MetricFamily
	byName map[string]*dto.MetricFamily

	metrics []dto.Metric
	values  []dto.Gauge
	numbers []float64
	pairs   []dto.LabelPair
	texts   []string
}

func newSink() *sink { return &sink{byName: map[string]*dto.MetricFamily{}} }

// slab is how many of each are made at a time.
const slab = 512

func next[T any](of *[]T) *T {
	if len(*of) == 0 {
		*of = make([]T, slab)
	}
	x := &(*of)[0]
	*of = (*of)[1:]
	return x
}

// family gives the one of a name; kind and help count the first time.
func (s *sink) family(name, help string, kind dto.MetricType) *dto.MetricFamily {
	f := s.byName[name]
	if f == nil {
		if help == "" {
			help = strings.ReplaceAll(strings.TrimPrefix(name, "slurm_"), "_", " ")
		}
		f = &dto.MetricFamily{Name: &name, Help: &help, Type: &kind}
		s.byName[name] = f
		s.list = append(s.list, f)
	}
	return f
}

// add adds a sample; labels are names and values in turn, in order of names.
func (s *sink) add(f *dto.MetricFamily, labels []string, v float64) {
	m := next(&s.metrics)
	if n := len(labels) / 2; n > 0 {
		m.Label = make([]*dto.LabelPair, 0, n)
	}
	for i := 0; i+1 < len(labels); i += 2 {
		p, name, value := next(&s.pairs), next(&s.texts), next(&s.texts)
		*name, *value = labels[i], strings.ToValidUTF8(labels[i+1], "?")
		p.Name, p.Value = name, value
		m.Label = append(m.Label, p)
	}
	number := next(&s.numbers)
	*number = v
	switch f.GetType() {
	case dto.MetricType_COUNTER:
		m.Counter = &dto.Counter{Value: number}
	case dto.MetricType_UNTYPED:
		m.Untyped = &dto.Untyped{Value: number}
	default:
		m.Gauge = next(&s.values)
		m.Gauge.Value = number
	}
	f.Metric = append(f.Metric, m)
}

// take adds what a registry has.
func (s *sink) take(of prometheus.Gatherer) {
	list, err := of.Gather()
	if err != nil {
		return // it has only collectors of this package's, which a test gathers
	}
	s.list = append(s.list, list...)
}

// sorted gives the families by name.
func (s *sink) sorted() []*dto.MetricFamily {
	slices.SortFunc(s.list, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return s.list
}

// gauge gives one value.
func gauge(out *sink, name, help string, labels []string, v float64) {
	out.add(out.family(name, help, dto.MetricType_GAUGE), labels, v)
}

// counter is gauge for what only grows. OpenMetrics lets the names of counters end in _total only.
func counter(out *sink, name, help string, labels []string, v float64) {
	kind := dto.MetricType_COUNTER
	if !strings.HasSuffix(name, "_total") {
		kind = dto.MetricType_UNTYPED
	}
	out.add(out.family(name, help, kind), labels, v)
}
