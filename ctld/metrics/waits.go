package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Waits counts how long jobs waited and passes of the planner took, since this controller started. The zero value
// counts from zero. Its series are as many as there are partitions, QOS and types of GPUs together in use.
type Waits struct {
	once   sync.Once
	wait   *prometheus.HistogramVec
	all    prometheus.Histogram
	pass   prometheus.Histogram
	failed prometheus.Counter
}

func (w *Waits) ready() {
	w.once.Do(func() {
		spans := []float64{1, 10, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400}
		w.wait = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "gbatch_job_wait_seconds", Buckets: spans,
			Help: "how long jobs waited, from when nothing but resources held them until their start"},
			[]string{"partition", "qos", "gpu_type"})
		w.all = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "scheduler_queue_wait_seconds", Buckets: spans,
			Help: "how long jobs waited"})
		w.pass = prometheus.NewHistogram(prometheus.HistogramOpts{Name: "gbatch_planner_pass_seconds",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9), Help: "how long passes of the planner took"})
		w.failed = prometheus.NewCounter(prometheus.CounterOpts{Name: "scheduler_schedule_failures",
			Help: "starts that were planned and not made, because the facts had changed"})
	})
}

// Passed counts a pass.
func (w *Waits) Passed(took time.Duration) {
	w.ready()
	w.pass.Observe(took.Seconds())
}

// Refused counts a start that was planned and not made.
func (w *Waits) Refused() {
	w.ready()
	w.failed.Inc()
}

// Started counts a job that starts; v is the view in which it waited.
func (w *Waits) Started(v *state.View, st *model.Start, now model.Time) {
	j := v.Job(st.Job)
	if j == nil {
		return
	}
	w.ready()
	since := max(j.Eligible, j.Submit)
	waited := max(0, float64(now-since)/1000)
	kind := ""
	if st.Alloc != nil {
		for i := range st.Alloc.Nodes {
			for k := range st.Alloc.Nodes[i].Gres {
				if g := &st.Alloc.Nodes[i].Gres[k]; g.Name == "gpu" && kind == "" {
					if kind = g.Type; kind == "" {
						kind = "gpu"
					}
				}
			}
		}
	}
	w.wait.WithLabelValues(st.Partition, j.Spec.QOS, kind).Observe(waited)
	w.all.Observe(waited)
}

func (w *Waits) collect(out chan<- prometheus.Metric) {
	w.ready()
	w.wait.Collect(out)
	w.all.Collect(out)
	w.pass.Collect(out)
	w.failed.Collect(out)
}
