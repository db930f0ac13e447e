package metrics

import (
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// Waits counts how long jobs waited, and how long passes of the planner, requests, writes of the log and shipments of
// accounting records took, since this controller started. The zero value counts from zero. Its series are as many as
// there are partitions, QOS and types of GPUs together in use.
type Waits struct {
	once   sync.Once
	own    *prometheus.Registry
	rpc    prometheus.Histogram
	http   prometheus.Histogram
	codes  *prometheus.CounterVec
	write  prometheus.Histogram
	ship   prometheus.Histogram
	sent   prometheus.Counter
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
		took := func(name, help string, from float64) prometheus.Histogram {
			return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help,
				Buckets: prometheus.ExponentialBuckets(from, 4, 9)})
		}
		w.rpc = took("gbatch_rpc_seconds", "how long commands' requests took, without those that wait on purpose", 0.0001)
		w.http = took("gbatch_http_request_seconds", "how long requests over HTTP took, without streams", 0.0001)
		w.codes = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "gbatch_http_requests_total",
			Help: "requests over HTTP by the class of their status; 511, for bad tokens, is 4xx"}, []string{"code"})
		w.write = took("gbatch_store_write_seconds", "how long writes of the log to the disk took", 0.0001)
		w.ship = took("gbatch_accounting_put_seconds", "how long gdbd took for a batch of records", 0.001)
		w.sent = prometheus.NewCounter(prometheus.CounterOpts{Name: "gbatch_accounting_records_total",
			Help: "records that gdbd took"})
		w.own = prometheus.NewRegistry()
		w.own.MustRegister(w.wait, w.all, w.pass, w.rpc, w.http, w.codes, w.write, w.ship, w.sent)
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

// Answered counts a command's request.
func (w *Waits) Answered(took time.Duration) {
	w.ready()
	w.rpc.Observe(took.Seconds())
}

// Served counts a request over HTTP.
func (w *Waits) Served(status int, took time.Duration) {
	w.ready()
	w.http.Observe(took.Seconds())
	class := status / 100
	if status == http.StatusNetworkAuthenticationRequired { // Slurm's answer to a bad token: the client's fault
		class = 4
	}
	w.codes.WithLabelValues(codeClasses[max(0, min(len(codeClasses)-1, class))]).Inc()
}

var codeClasses = [...]string{"none", "1xx", "2xx", "3xx", "4xx", "5xx"}

// Wrote counts a write of the log.
func (w *Waits) Wrote(took time.Duration) {
	w.ready()
	w.write.Observe(took.Seconds())
}

// Shipped counts accounting records that gdbd took in one batch.
func (w *Waits) Shipped(records int, took time.Duration) {
	w.ready()
	w.ship.Observe(took.Seconds())
	w.sent.Add(float64(records))
}

func (w *Waits) collect(out *sink) {
	w.ready()
	out.take(w.own)
	var m dto.Metric
	if w.failed.Write(&m) == nil { // it always works
		counter(out, "scheduler_schedule_failures", "starts that were planned and not made, because the facts had changed",
			nil, m.GetCounter().GetValue())
	}
}
