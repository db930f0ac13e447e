package metrics_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"gbatch/ctld/metrics"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

const epoch = model.Time(1_700_000_000_000)

// cluster gives a view of a cluster with jobs, of which half run as far as there is room.
func cluster(tb testing.TB, nodes, jobs int) *state.View {
	tb.Helper()
	st := state.New()
	apply := func(b state.Body) state.Result {
		tb.Helper()
		r := st.Apply(state.Command{At: epoch, Body: b})
		if r.Refusal != 0 {
			tb.Fatalf("%T: %v", b, r.Refusal)
		}
		for _, e := range r.Each {
			if e != 0 {
				tb.Fatalf("%T: %v", b, e)
			}
		}
		return r
	}
	cfg := &model.Config{Cluster: "bench", Params: model.Params{MinJobAgeS: 300},
		Licenses: []model.LicenseCount{{Name: "matlab", Count: 5}}}
	p := &model.Partition{Name: "p", Default: true}
	for i := range nodes {
		name := fmt.Sprintf("n%04d", i)
		cfg.Nodes = append(cfg.Nodes, &model.NodeDef{Name: name, CPUs: 128, ThreadsPerCore: 1, MemMiB: 500_000,
			Gres: []model.GresDef{{Name: "gpu", Type: "a100", Count: 8}}})
		p.Nodes = append(p.Nodes, name)
	}
	cfg.Partitions = append(cfg.Partitions, p)
	apply(&state.SetConfig{Config: cfg})
	account := func(name, parent string, limits ...model.TRESLimit) []model.AcctEdit {
		return []model.AcctEdit{{Op: model.PutAccount, Account: &model.Account{Name: name, Parent: parent}},
			{Op: model.PutAssoc, Assoc: &model.Association{Account: name, Shares: 1, GrpTRES: limits}}}
	}
	apply(&state.Accounts{Edits: append(account("division", "root", model.TRESLimit{TRES: "gres/gpu", Count: 10}),
		account("acct00", "division")...)})
	for _, n := range p.Nodes {
		apply(&state.Join{Node: n, BootID: "b"})
	}
	for i := range jobs {
		user, id := fmt.Sprintf("user%03d", i*7919%400), uint32(1000+i*7919%400)
		apply(&state.Submit{RequestID: fmt.Sprintf("%032x", i), Priority: 1_000_000,
			Spec: &model.Spec{Name: "case", UID: id, GID: id, User: user, Group: user, Account: fmt.Sprintf("acct%02d", i%40),
				QOS: "normal", Partitions: []string{"p"}, Command: "/home/job.sh", WorkDir: "/home", StdIn: "/dev/null",
				StdOut: "/dev/null", MinNodes: 1, MaxNodes: 1, Tasks: 1, CPUsPerTask: 1, LimitS: 3600}})
	}
	for i := range min(jobs/2, nodes) {
		apply(&state.Starts{Plan: model.Plan{Starts: []model.Start{{Job: model.JobID(i + 1), Task: model.NoTask,
			Partition: "p", LimitS: 3600,
			Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: p.Nodes[i], CPUs: model.UpTo(8), MemMiB: 1000, Tasks: 1,
				Gres: []model.GresAlloc{{Name: "gpu", Type: "a100", Index: model.UpTo(4)}}}}}}}}})
		apply(&state.Reports{Reports: []state.Report{{Kind: state.Started, Job: model.JobID(i + 1), Attempt: 1,
			At: epoch}}})
	}
	return st.View()
}

// source is a scrape of everything that there can be.
func source(v *state.View) metrics.Source {
	d := &proto.DiagReply{Now: epoch, Pending: 3, ByType: []proto.DiagRPC{{Name: "REQUEST_JOB_INFO", Count: 3, SumUS: 9}},
		ByUser: []proto.DiagRPC{{Name: "alice", ID: 1000, Count: 3, SumUS: 9}}}
	w := &metrics.Waits{}
	w.Passed(time.Millisecond)
	w.Refused()
	w.Started(v, &model.Start{Job: 1, Partition: "p"}, epoch+5000)
	w.Answered(time.Millisecond)
	w.Served(200, time.Millisecond)
	w.Wrote(time.Millisecond)
	w.Shipped(5, time.Millisecond)
	return metrics.Source{View: v, Now: epoch + 10_000, Leads: true, Stats: d, Waits: w, Series: 1000,
		Own: &metrics.Own{Role: "Leader", Certificates: map[string]int64{"controller": 1_800_000_000}, FreeB: 1, SizeB: 9,
			Dbds: []metrics.Dbd{{Up: true}, {Copy: true, Behind: -1}}},
		Readings: func(string) []proto.UnitReading {
			return []proto.UnitReading{{Name: "gpu", Index: 0, UtilPct: 90, MemUsedMiB: 10, MemTotalMiB: 100},
				{Name: "gpu", Index: 1, UtilPct: 0}, {Name: "gpu", Index: 2, UtilPct: 30, Lost: true},
				{Name: "gpu", Index: 7, UtilPct: 50}}
		}}
}

func scrape(tb testing.TB, src metrics.Source, path, accept string) string {
	tb.Helper()
	h := metrics.Handler(func(*http.Request) metrics.Source { return src })
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		tb.Fatalf("%s: %d %.200s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// TestBrokenScrape: those who share an answer whose making panicked hear of an error, not of an empty success.
func TestBrokenScrape(t *testing.T) {
	h := metrics.Handler(func(*http.Request) metrics.Source { panic("a test") })
	func() {
		defer func() { _ = recover() }() // as net/http does
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil))
	}()
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil)); w.Code != http.StatusInternalServerError {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

// TestOneWalk: scrapes in a loop get one answer a second, whatever the client sends along; each format has its own.
func TestOneWalk(t *testing.T) {
	src := source(cluster(t, 4, 10))
	synctest.Test(t, func(t *testing.T) {
		looks := atomic.Int64{}
		h := metrics.Handler(func(*http.Request) metrics.Source {
			looks.Add(1)
			time.Sleep(time.Millisecond)
			return src
		})
		ask := func(query, accept string) string {
			r := httptest.NewRequest(http.MethodGet, "/metrics"+query, nil)
			r.Header.Set("Accept", accept)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "slurm_jobs_pending 6") {
				t.Errorf("%d %.100s", w.Code, w.Body)
			}
			return w.Header().Get("Content-Type")
		}
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() { ask(fmt.Sprint("?x=", i), plainText) })
		}
		all.Wait()
		if n := looks.Load(); n != 1 {
			t.Errorf("100 scrapes walked the jobs %d times", n)
		}
		if got := ask("", openMetrics); !strings.Contains(got, "openmetrics") {
			t.Errorf("another format is answered as %s", got)
		}
		time.Sleep(time.Second)
		if ask("", plainText); looks.Load() != 3 {
			t.Errorf("a second later: %d", looks.Load())
		}
	})
}

const (
	plainText   = "text/plain;version=0.0.4"
	openMetrics = "application/openmetrics-text;version=1.0.0"
)

// exposition is a scrape, read strictly: the series of each family, by name and labels.
type exposition struct {
	kinds  map[string]string
	series map[string]float64
	names  map[string]bool
}

var (
	sampleForm = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([-+.0-9eEInfNa]+)$`)
	labelForm  = regexp.MustCompile(`^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)`)
)

// read holds a text against the format: HELP and TYPE once and before their samples, which stand together; no series
// twice; names, labels, escapes and numbers well formed; buckets that grow, end at +Inf and agree with their count.
func read(t *testing.T, text string, open bool) *exposition {
	t.Helper()
	x := &exposition{kinds: map[string]string{}, series: map[string]float64{}, names: map[string]bool{}}
	helps, closed := map[string]bool{}, map[string]bool{}
	family := ""
	bad := func(line, format string, a ...any) { t.Errorf("%s: %s", fmt.Sprintf(format, a...), line) }
	if text == "" {
		return x
	}
	if !strings.HasSuffix(text, "\n") {
		t.Error("the last line has no end")
	}
	type bucket struct{ le, n float64 }
	buckets := map[string][]bucket{}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if open {
		if lines[len(lines)-1] != "# EOF" {
			t.Errorf("the end is %q", lines[len(lines)-1])
		}
		lines = lines[:len(lines)-1]
	}
	for _, line := range lines {
		if about, is := strings.CutPrefix(line, "# "); is {
			word, rest, _ := strings.Cut(about, " ")
			name, value, _ := strings.Cut(rest, " ")
			if name != family {
				if closed[name] {
					bad(line, "the family is in two places")
				}
				closed[family], family = true, name
			}
			switch {
			case word == "HELP" && !helps[name] && value != "":
				helps[name] = true
			case word == "TYPE" && x.kinds[name] == "" && slices.Contains([]string{"gauge", "counter", "histogram", "untyped",
				"unknown"}, value):
				x.kinds[name] = value
			default:
				bad(line, "malformed or repeated")
			}
			continue
		}
		m := sampleForm.FindStringSubmatch(line)
		if m == nil {
			bad(line, "no sample")
			continue
		}
		name, labels := m[1], m[2]
		base, le := name, ""
		if x.kinds[base] == "" {
			for _, end := range []string{"_bucket", "_sum", "_count", "_total"} {
				if cut, is := strings.CutSuffix(name, end); is &&
					(x.kinds[cut] == "histogram" || open && x.kinds[cut] == "counter") {
					base = cut
				}
			}
		}
		if base != family || x.kinds[base] == "" || !helps[base] {
			bad(line, "not below its own HELP and TYPE")
		}
		if kind := x.kinds[base]; kind == "counter" && !strings.HasSuffix(name, "_total") {
			bad(line, "a counter whose name does not end in _total")
		}
		key, seen := "", map[string]bool{}
		for rest := labels; rest != ""; {
			l := labelForm.FindStringSubmatch(rest)
			if l == nil || seen[l[1]] {
				bad(line, "malformed or repeated label")
				break
			}
			seen[l[1]], rest = true, rest[len(l[0]):]
			if l[1] == "le" && base != name {
				le = l[2]
			} else {
				key += l[1] + "=" + l[2] + ","
			}
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			bad(line, "%v", err)
		}
		if _, twice := x.series[name+"{"+labels+"}"]; twice {
			bad(line, "a series twice")
		}
		x.series[name+"{"+labels+"}"], x.names[name] = v, true
		switch {
		case le != "":
			bound, err := strconv.ParseFloat(le, 64)
			if err != nil {
				bad(line, "%v", err)
			}
			buckets[base+" "+key] = append(buckets[base+" "+key], bucket{bound, v})
		case base != name && strings.HasSuffix(name, "_count"):
			list := buckets[base+" "+key]
			if len(list) == 0 || list[len(list)-1].n != v || !math.IsInf(list[len(list)-1].le, 1) {
				bad(line, "the last bucket is not +Inf, or not the count: %v", list)
			}
			if !slices.IsSortedFunc(list, func(a, b bucket) int {
				if a.le < b.le && a.n <= b.n {
					return -1
				}
				return 1
			}) {
				bad(line, "buckets don't grow: %v", list)
			}
		}
	}
	return x
}

// Every path is well formed, in both formats, and has the names that boards know.
func TestExposition(t *testing.T) {
	src := source(cluster(t, 4, 10))
	for _, path := range []string{"", "/jobs", "/nodes", "/partitions", "/jobs-users-accts", "/scheduler", "/all"} {
		for _, open := range []bool{false, true} {
			accept := map[bool]string{false: plainText, true: openMetrics}[open]
			text := scrape(t, src, "/metrics"+path, accept)
			x := read(t, text, open)
			if path != "" || open {
				continue
			}
			for name, want := range map[string]float64{`slurm_jobs{}`: 10,
				`slurm_jobs_pending{}`: 6, `slurm_jobs_running{}`: 4,
				`slurm_nodes_mixed{}`: 4, `slurm_nodes_err{}`: 0, `gbatch_gpus_allocated_idle{type="a100"}`: 4,
				`gbatch_gpu_utilization_percent{type="a100"}`: 45, `gbatch_gpus{state="allocated",type="a100"}`: 16,
				`gbatch_account_gpus_used{account="division"}`: 4, `gbatch_account_gpus_limit{account="division"}`: 10,
				`quota_online_used{}`: 16, `gbatch_job_wait_seconds_count{gpu_type="",partition="p",qos="normal"}`: 1,
				`gbatch_raft_role{role="Leader"}`: 1, `gbatch_node_up{node="n0000"}`: 1, `scheduler_schedule_failures{}`: 1,
				`gbatch_accounting_records_total{}`: 5, `gbatch_http_requests_total{code="2xx"}`: 1} {
				if got, is := x.series[name]; !is || got != want {
					t.Errorf("%s is %v (%v), want %v", name, got, is, want)
				}
			}
		}
	}
}

// foreign begin names that are other programs': they are as they are.
var foreign = []string{"slurm_", "scheduler_", "task_", "agent_", "compute_", "quota_"}

// TestLint is what promtool check metrics says.
func TestLint(t *testing.T) {
	text := scrape(t, source(cluster(t, 4, 10)), "/metrics", plainText)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !slices.ContainsFunc(foreign, func(f string) bool { return strings.HasPrefix(p.Metric, f) }) {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// Users without series of their own are counted together.
func TestFewSeries(t *testing.T) {
	src := source(cluster(t, 2, 50))
	count := func(n int, path, name string) (series, sum float64) {
		src.Series = n
		for key, v := range read(t, scrape(t, src, path, plainText), false).series {
			if strings.HasPrefix(key, name+"{") {
				series, sum = series+1, sum+v
			}
		}
		return series, sum
	}
	for _, x := range []struct {
		n            int
		path, name   string
		series, jobs float64
	}{{1000, "/metrics/jobs-users-accts", "slurm_user_jobs", 50, 50},
		{5, "/metrics/jobs-users-accts", "slurm_user_jobs", 6, 50},
		{5, "/metrics/jobs-users-accts", "slurm_account_jobs", 6, 50},
		{0, "/metrics/jobs-users-accts", "slurm_user_jobs", 0, 0}, {5, "/metrics", "slurm_user_jobs_pending", 6, 48},
		{0, "/metrics", "slurm_user_jobs_pending", 0, 0}} {
		if series, jobs := count(x.n, x.path, x.name); series != x.series || jobs != x.jobs {
			t.Errorf("%s with %d: %v series with %v jobs, want %v with %v", x.path, x.n, series, jobs, x.series, x.jobs)
		}
	}
}

// words of PromQL that are no names of metrics.
var promWords = strings.Fields("by without on ignoring group_left group_right bool and or unless offset inf nan")

var (
	promText   = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|\[[^\]]*\]`)
	promLabels = regexp.MustCompile(`\{[^}]*\}|\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`)
	promName   = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*\s*\(?`)
)

// asks gives the metrics of a query.
func asks(t *testing.T, query string) (names []string) {
	t.Helper()
	depth := 0
	plain := promText.ReplaceAllString(query, "")
	for _, c := range plain {
		if depth += strings.Count("([{", string(c)) - strings.Count(")]}", string(c)); depth < 0 {
			break
		}
	}
	if depth != 0 {
		t.Errorf("brackets of %s", query)
	}
	for _, name := range promName.FindAllString(promLabels.ReplaceAllString(plain, ""), -1) {
		if name = strings.TrimSpace(name); !strings.HasSuffix(name, "(") && !slices.Contains(promWords, name) {
			names = append(names, name)
		}
	}
	return names
}

// ruleForm is how etc's rules are written: name, query.
var ruleForm = regexp.MustCompile(`^(\w+)\n {8}expr: ([a-z].*)\n(?: {8}for: \d+[smh]\n)?` +
	` {8}labels: \{severity: (?:info|warning|critical)\}\n {8}annotations:\n {10}summary: "[^"]+"\n(?:  - name:|$)?`)

// Rules and boards ask for nothing that is not there.
func TestRulesAndBoards(t *testing.T) {
	x := read(t, scrape(t, source(cluster(t, 4, 10)), "/metrics", plainText), false)
	x.names["up"] = true // Prometheus' own
	check := func(where, query string) {
		names := asks(t, query)
		if len(names) == 0 {
			t.Errorf("%s: %s asks for nothing", where, query)
		}
		for _, name := range names {
			if !x.names[name] {
				t.Errorf("%s: there is no %s: %s", where, name, query)
			}
		}
	}
	data, err := os.ReadFile("../../etc/prometheus/gbatch.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, text := range strings.Split(string(data), "      - alert: ")[1:] {
		r := ruleForm.FindStringSubmatch(text)
		if r == nil {
			t.Errorf("a rule has another form: %s", text)
			continue
		}
		if name, expr := r[1], r[2]; seen[name] || strings.Contains(expr, ": ") || strings.Contains(expr, " #") {
			t.Errorf("%s is there twice, or no plain text of YAML: %s", name, expr)
		}
		seen[r[1]] = true
		check(r[1], r[2])
	}
	data, err = os.ReadFile("../../etc/grafana/gbatch.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title, UID string
		Panels     []struct {
			Title   string
			Targets []struct{ Expr string }
			GridPos struct{ X, Y, W, H int }
		}
	}
	if err := json.Unmarshal(data, &board); err != nil {
		t.Fatal(err)
	}
	if len(board.Panels) < 10 || len(seen) < 15 {
		t.Errorf("%d panels, %d alerts", len(board.Panels), len(seen))
	}
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			check(p.Title, q.Expr)
		}
		if len(p.Targets) == 0 || p.GridPos.W == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
	}
	for name, list := range boards { // what well-known boards of other exporters ask for
		for _, query := range list {
			check(name, query)
		}
	}
}

// boards are queries of published boards.
var boards = map[string][]string{
	"vpenso, Grafana 4323": {
		"slurm_nodes_alloc", "slurm_nodes_idle", "slurm_nodes_comp", "slurm_nodes_down",
		"slurm_nodes_drain", "slurm_nodes_err", "slurm_nodes_fail", "slurm_nodes_maint", "slurm_nodes_mix",
		"slurm_nodes_resv", "slurm_cpus_alloc", "slurm_cpus_idle", "slurm_cpus_other", "slurm_cpus_total",
		"slurm_gpus_alloc", "slurm_gpus_idle", "slurm_gpus_total", "slurm_gpus_utilization",
		"slurm_queue_pending", "slurm_queue_pending_dependency", "slurm_queue_running",
		"slurm_queue_suspended", "slurm_queue_cancelled", "slurm_queue_completing", "slurm_queue_completed",
		"slurm_queue_configuring", "slurm_queue_failed", "slurm_queue_timeout", "slurm_queue_preempted",
		"slurm_queue_node_fail", "slurm_account_jobs_pending", "slurm_account_jobs_running",
		"slurm_account_cpus_running", "slurm_user_jobs_pending", "slurm_user_jobs_running",
		"slurm_user_cpus_running", "slurm_scheduler_threads", "slurm_scheduler_queue_size",
		"slurm_scheduler_last_cycle", "slurm_scheduler_mean_cycle", "slurm_scheduler_cycle_per_minute",
		"slurm_scheduler_backfill_last_cycle", "slurm_scheduler_backfill_mean_cycle",
		"slurm_scheduler_backfill_depth_mean", "slurm_scheduler_backfilled_jobs_since_start_total",
		"slurm_scheduler_backfilled_jobs_since_cycle_total",
		"slurm_scheduler_backfilled_heterogeneous_total", "slurm_scheduler_dbd_queue_size",
		"slurm_partition_cpus_allocated", "slurm_partition_cpus_idle", "slurm_partition_cpus_other",
		"slurm_partition_cpus_total", "slurm_partition_jobs_pending",
	},
	"rivosinc": {"slurm_pending_reason_total", "slurm_lic_total", "slurm_lic_used", "slurm_lic_free"},
	"Slinky":   {"slurm_jobs_pending", "slurm_jobs_running", "slurm_partition_jobs_pending", "slurm_nodes_alloc"},
}

// BenchmarkScrape is a whole scrape of 2,000 nodes with 8 GPUs each and 100,000 jobs.
func BenchmarkScrape(b *testing.B) {
	for _, x := range []struct{ nodes, jobs int }{{1000, 10_000}, {2000, 100_000}} {
		src := source(cluster(b, x.nodes, x.jobs))
		b.Run(fmt.Sprintf("nodes=%d/jobs=%d", x.nodes, x.jobs), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				scrape(b, src, "/metrics", plainText)
			}
		})
	}
}

// TestSharesOfWholes: a limit in percent is of the GPUs of the nodes that take jobs; GPUs out of service are not idle,
// and one that was put back counts again; an array counts with each of its tasks, by the reason that squeue shows.
func TestSharesOfWholes(t *testing.T) {
	const nodes, jobs = 10, 30
	st := state.New()
	apply := func(b state.Body) {
		t.Helper()
		if r := st.Apply(state.Command{At: epoch, Body: b}); r.Refusal != 0 {
			t.Fatalf("%T: %v", b, r.Refusal)
		}
	}
	cfg := &model.Config{Cluster: "bench", Params: model.Params{MinJobAgeS: 300, MaxArraySize: 1000}}
	p := &model.Partition{Name: "p", Default: true}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		cfg.Nodes = append(cfg.Nodes, &model.NodeDef{Name: name, CPUs: 8, ThreadsPerCore: 1, MemMiB: 1000,
			Gres: []model.GresDef{{Name: "gpu", Type: "a100", Count: 8}}})
		p.Nodes = append(p.Nodes, name)
	}
	cfg.Partitions = append(cfg.Partitions, p)
	apply(&state.SetConfig{Config: cfg})
	apply(&state.Accounts{Edits: []model.AcctEdit{
		{Op: model.PutAccount, Account: &model.Account{Name: "physics", Parent: "root"}},
		{Op: model.PutAssoc, Assoc: &model.Association{Account: "physics", Shares: 1,
			GrpTRES: []model.TRESLimit{{TRES: "gres/gpu", Count: 2500, Percent: true}}}}}})
	for _, n := range p.Nodes[:8] {
		apply(&state.Join{Node: n, BootID: "b"})
	}
	spec := &model.Spec{Name: "case", UID: 1000, GID: 1000, User: "ann", Group: "ann", Account: "physics", QOS: "normal",
		Partitions: []string{"p"}, Command: "/home/job.sh", WorkDir: "/home", StdIn: "/dev/null", StdOut: "/dev/null",
		MinNodes: 1, MaxNodes: 1, Tasks: 1, CPUsPerTask: 1, LimitS: 3600}
	apply(&state.Submit{RequestID: strings.Repeat("1", 32), Priority: 1_000_000, Spec: spec})
	array := *spec
	array.Tasklist, array.ArrayText = model.TaskSet{{Lo: 1, Hi: jobs, Step: 1}}, fmt.Sprint("1-", jobs)
	apply(&state.Submit{RequestID: strings.Repeat("2", 32), Priority: 1_000_000, Spec: &array})
	fault := func(unit int32) model.UnitTell {
		return model.UnitTell{Name: "gpu", Index: unit, Kind: model.OutFault, Text: "XID 79", Stamp: uint64(unit) + 1}
	}
	apply(&state.Units{Node: "n0", Tells: []model.UnitTell{fault(0), fault(1), fault(2)}})
	// The node reports the fault for as long as it runs; to the operator the GPU is well.
	apply(&state.NodeEdit{Nodes: []string{"n0"}, Admin: model.NodeUp, By: "root", Gres: "gpu", Units: []int32{2}})
	if out := st.View().Node("n0").Out; len(out) != 3 || out[2].Kind != model.OutCleared {
		t.Fatalf("out of service: %+v", out)
	}
	src := source(st.View())
	x := read(t, scrape(t, src, "/metrics", plainText), false)
	for series, want := range map[string]float64{`gbatch_gpus_out_of_service{type="a100"}`: 2,
		`gbatch_gpus{state="idle",type="a100"}`: 62, `gbatch_gpus{state="unavailable",type="a100"}`: 16,
		`gbatch_gpus{state="out_of_service",type="a100"}`: 2,
		"slurm_gpus_idle{}": 62, "slurm_gpus_other{}": 18, "slurm_gpus_total{}": 80} {
		if got := x.series[series]; got != want {
			t.Errorf("%s is %g, not %g", series, got, want)
		}
	}
	if got := x.series[`gbatch_account_gpus_limit{account="physics"}`]; got != 16 { // a quarter of 64
		t.Errorf("25%% of the GPUs are %g", got)
	}
	waiting := 0.0
	for name, n := range x.series {
		if strings.HasPrefix(name, "gbatch_jobs_pending{") {
			waiting += n
		}
	}
	if all := x.series["slurm_jobs_pending{}"]; waiting != all || all != jobs+1 {
		t.Errorf("%g jobs wait by their reasons, %g do", waiting, all)
	}
}
