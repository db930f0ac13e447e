package page

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"gbatch/internal/ask"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// told is a cluster that answers each kind of question with what stands here; others have an empty answer.
type told struct {
	nobody
	by map[uint16]proto.Message
}

func (c told) Ask(_ context.Context, _ *proto.Caller, kind uint16, _ proto.Message,
	each func([]byte) error) (time.Duration, error) {
	m := c.by[kind]
	if m == nil {
		return 0, nil
	}
	body, err := proto.Encode(m)
	if err != nil {
		return 0, err
	}
	return 0, each(body)
}

func (told) MayAsk(*proto.Caller, uint16) error { return nil }

func (told) MayChange(*proto.Caller, *model.Spec) bool { return true }

// asks is a request for a page of such a cluster.
func asks(t *testing.T, path string, by map[uint16]proto.Message) (*request, *httptest.ResponseRecorder) {
	w := httptest.NewRecorder()
	q := &request{p: New(&Options{Cluster: told{by: by}}), ctx: t.Context(), who: &proto.Caller{UID: 5, User: "ann"},
		r: httptest.NewRequest("GET", path, nil), w: w, now: 10_000_000}
	q.at.Now = moment(q.now)
	return q, w
}

// aNode has four GPUs and so many CPUs, of which the first are held.
func aNode(name string, cpus, used int) *proto.NodeInfo {
	n := &model.Node{Def: &model.NodeDef{Name: name, CPUs: int32(cpus), MemMiB: 1000,
		Gres: []model.GresDef{{Name: model.GPUName, Type: "a100", Count: 4}}}, Link: model.LinkUp,
		UsedCPUs: model.UpTo(used)}
	return &proto.NodeInfo{Node: n, LoadMilli: -1, FreeMemMiB: -1}
}

func aJob(id model.JobID, user string, nodes ...model.NodeAlloc) *model.Job {
	return &model.Job{ID: id, State: model.Running, Task: model.NoTask, Spec: &model.Spec{Name: "j", User: user, UID: 5},
		Run: &model.Run{Start: 1000, Alloc: &model.Alloc{Nodes: nodes}}}
}

// TestFreeForJobs: an idle GPU of a node without a free CPU, or without memory, is not free.
func TestFreeForJobs(t *testing.T) {
	full, part, swamped := aNode("n1", 8, 8), aNode("n2", 8, 7), aNode("n3", 8, 0)
	swamped.Node.UsedMem = 1000
	by := map[uint16]proto.Message{proto.KindNodes: &proto.NodesChunk{Nodes: []*proto.NodeInfo{full, part, swamped}}}
	q, w := asks(t, "/gpus", by)
	v, err := gpus(q)
	if err != nil {
		t.Fatal(err)
	}
	g := v.(*gpuView)
	if k := g.Kinds[0]; g.Total.Free != 4 || g.Total.Stuck != 8 || g.Total.Out != 0 || k.Largest != 4 || k.OnNodes != 1 {
		t.Errorf("%d are free and %d out of reach; %d on %d nodes is the largest job", g.Total.Free, g.Total.Stuck,
			k.Largest, k.OnNodes)
	}
	if len(g.Out) != 8 || !strings.Contains(g.Out[0].Why, "no CPU") || !strings.Contains(g.Out[7].Why, "no memory") {
		t.Errorf("GPUs that jobs don't get: %+v", g.Out)
	}
	q.gpuData()
	if n := strings.Count(w.Body.String(), "[8,-1,-1]"); n != 8 {
		t.Errorf("%d cells are out of reach: %s", n, w.Body)
	}
	n := aNode("n4", 16, 8).Node
	for _, x := range []struct {
		per  []perGPU
		want int
	}{{nil, 4}, {[]perGPU{{cpus: 4}}, 2}, {[]perGPU{{cpus: 4}, {cpus: 2}}, 4}, {[]perGPU{{memMiB: 400}}, 2}} {
		if fit, why := gettable(n, 4, x.per); fit != x.want || (why == "") != (fit == 4) {
			t.Errorf("%v: %d fit, not %d: %q", x.per, fit, x.want, why)
		}
	}
}

// TestParts: a job that holds a part of a GPU has it on the page, in its size, in the map, and as a holder of it.
func TestParts(t *testing.T) {
	i := aNode("n1", 8, 2)
	i.Node.Def.Gres = append(i.Node.Def.Gres, model.GresDef{Name: "shard", Count: 8,
		Over: []model.Share{{GPU: 1, Count: 8}}})
	i.Node.Shared = []model.SharedGPU{{GPU: 1, Name: "shard", Count: 5}}
	i.Readings = []proto.UnitReading{{Name: model.GPUName, Index: 1, UtilPct: 60}}
	part := func(n int) model.NodeAlloc {
		return model.NodeAlloc{Node: "n1", Gres: []model.GresAlloc{{Name: "shard", Index: model.UpTo(n),
			Share: &model.GPUShare{GPU: 1, Of: 8}}}}
	}
	a, b := aJob(7, "ann", part(4)), aJob(8, "bob", part(1))
	by := map[uint16]proto.Message{proto.KindNodes: &proto.NodesChunk{Nodes: []*proto.NodeInfo{i}},
		proto.KindJobs: &proto.JobsChunk{Now: 10_000_000, Jobs: []*model.Job{a, b}}}
	q, w := asks(t, "/gpus.json?by=job", by)
	q.gpuData()
	var out struct {
		Racks []rack
		Jobs  []jobData
	}
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	n := out.Racks[0].Nodes[0]
	if cell := n.GPUs[1]; len(cell) != 4 || out.Jobs[cell[2]] != (jobData{"7", "ann"}) ||
		out.Jobs[cell[3]] != (jobData{"8", "bob"}) || n.Shares[1] != "5 of 8 shard" {
		t.Errorf("cell %v of %v, %q", cell, out.Jobs, n.Shares[1])
	}
	l := q.line(a, &ask.Rulebook{})
	if l.GPUs.String() != "0.5" || l.Size != "0.5 GPUs" {
		t.Errorf("the job has %s GPUs, size %q", l.GPUs, l.Size)
	}
	if q.useNow([]*jobLine{l}); l.UseText != "60\u00a0% of 0.5 GPUs" {
		t.Errorf("use: %q", l.UseText)
	}
	x := &job{jobLine: l}
	if q.jobGPUs(x, a); len(x.GPUList) != 1 || x.GPUList[0].Part != "5 of 8 shard" {
		t.Errorf("its GPUs: %+v", x.GPUList)
	}
	wait := &model.Job{ID: 9, State: model.Pending, Task: model.NoTask, Spec: &model.Spec{Name: "w", UID: 5, MinNodes: 1,
		MaxNodes: 1, Gres: []model.GresReq{{Name: "shard", Count: 3, Per: model.PerNode}}}}
	if l := q.line(wait, &ask.Rulebook{}); l.Size != "3 shard" {
		t.Errorf("the size of a job that waits for shares: %q", l.Size)
	}
	wait.Spec.Gres[0] = model.GresReq{Name: "shard", Milli: 500, Count: 4, Per: model.PerNode}
	if l := q.line(wait, &ask.Rulebook{}); l.Size != "0.5 GPUs" {
		t.Errorf("the size of a job that waits for half a GPU: %q", l.Size)
	}
	if got := count(gpuCount(12_345_500)); got != "12\u202f345.5" {
		t.Errorf("many GPUs: %q", got)
	}
}

// TestIdleGPUs: of a job that uses one of its GPUs the others are idle, and are counted for as long as they have been.
func TestIdleGPUs(t *testing.T) {
	i := aNode("n1", 8, 2)
	for k := range int32(4) {
		i.Readings = append(i.Readings, proto.UnitReading{Name: model.GPUName, Index: k, UtilPct: 97 * ((k + 1) / 4)})
	}
	j := aJob(7, "ann", model.NodeAlloc{Node: "n1", Gres: []model.GresAlloc{{Name: model.GPUName, Index: model.UpTo(4)}}})
	series := &proto.HistoryReply{}
	for k, util := range []int64{0, 0, 50} { // GPU 2 has been idle for the last point only
		s := proto.HistorySeries{Of: proto.HistoryGPU, Name: "n1/" + string(rune('0'+k)), StepS: wasteStepS}
		for p, at := range []model.Time{8_800_000, 9_400_000, 10_000_000} {
			v := int64(0)
			if p < 2 {
				v = util
			}
			s.Points = append(s.Points, proto.HistoryPoint{At: at, Values: []int64{v, 0, 0, 0, 7}})
		}
		series.List = append(series.List, s)
	}
	q, _ := asks(t, "/operators", map[uint16]proto.Message{
		proto.KindNodes: &proto.NodesChunk{Nodes: []*proto.NodeInfo{i}}, proto.KindHistory: series,
		proto.KindJobs: &proto.JobsChunk{Now: 10_000_000, Jobs: []*model.Job{j}}})
	v := &operatorsView{}
	if err := q.outOfService(v); err != nil {
		t.Fatal(err)
	}
	if err := q.waste(v); err != nil {
		t.Fatal(err)
	}
	if len(v.Waste) != 1 || v.Waste[0].GPUs != 3 || v.Waste[0].HoursText != "1.2" || v.Waste[0].Jobs[0] != "7" {
		t.Errorf("idle: %+v", v.Waste)
	}
	l := q.line(j, &ask.Rulebook{})
	if n := q.useNow([]*jobLine{l}); n != 3 {
		t.Errorf("my jobs counts %d idle GPUs", n)
	}
	g, err := gpus(q)
	if err != nil || g.(*gpuView).Total.Idle != 0 { // no holder is told here
		t.Errorf("%v %v", g, err)
	}
}

// TestWhyEach: each job that waits has a sentence of its own, also where others wait for the same.
func TestWhyEach(t *testing.T) {
	cause := []model.Cause{{Text: "held by its owner; gcontrol release 7 lets it go"}}
	q, w := asks(t, "/why", map[uint16]proto.Message{proto.KindWhy: &proto.WhyReply{Now: 10_000_000,
		List: []*model.Explanation{{Job: 7, Task: model.NoTask, State: model.Pending, Causes: cause},
			{Job: 8, Task: model.NoTask, State: model.Pending, Causes: cause}}}})
	q.why()
	out := map[string]saidWhy{}
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"7", "8"} {
		if out[id].Text != "Held by its owner" {
			t.Errorf("job %s: %q", id, out[id].Text)
		}
	}
}

// TestChart: a chart has the whole as its upper edge, or a round number, its times, and the value of each point.
func TestChart(t *testing.T) {
	x := &proto.HistorySeries{Of: proto.HistoryJob, Name: "7", StepS: 60, Points: []proto.HistoryPoint{
		{At: 9_940_000, Values: []int64{120, 9000, 9, 14_400, 1800}}, {At: 10_000_000, Values: []int64{80, 9000, 5, 14_400,
			1500}}}}
	in := frame{9_880_000, 10_000_000, 10_000_000, true}
	for _, c := range []struct {
		field     string
		whole     int64
		top, most string
	}{{"gpu_util", 100, "100\u00a0%", "9\u00a0%"}, {"gpu_mem", 160 << 10, "160G", "14.06G"},
		{"gpu_mem", 0, "16G", "14.06G"},
		{"cpu_use", 0, "2", "1.20"}, {"power", 0, "200\u00a0W", "180\u00a0W"}} {
		got := draw(x, c.field, "it", c.whole, in)
		if got == nil || got.Top != c.top || got.Most != c.most || len(got.Points) != 2 ||
			got.To != "now" || got.From == "" {
			t.Errorf("%s: %+v", c.field, got)
		}
	}
	if c := draw(x, "gpu_util", "it", 100, in); !strings.HasSuffix(c.Points[1].Text, ": 5\u00a0%") || !c.Low {
		t.Errorf("%+v", c)
	}
	if got := over(24 * 3600); got != "The last day" {
		t.Error(got)
	}
}

// TestTimelineLabels: names stand in their boxes or beside them, jobs too narrow to see are one box, and time in which
// nothing was is left out.
func TestTimelineLabels(t *testing.T) {
	const hour = model.Time(3600_000)
	now := 100 * hour
	d := &drawnNode{Name: "n1"}
	v := &timelineView{Hours: 12, from: now - 3*hour, to: now + 12*hour, Nodes: []*drawnNode{d},
		on: map[string]*drawnNode{"n1": d}}
	for k := range model.Time(5) {
		v.add([]string{"n1"}, box{From: now - hour/4 + k*20_000, To: now - hour/4 + k*20_000 + 10_000, Class: "past",
			Ref: "1", Title: "Job 1", Label: "1"})
	}
	v.add([]string{"n1"}, box{From: now, To: now + hour/20, Class: "runs", Label: "1234", Ref: "1234"})
	v.add([]string{"n1"}, box{From: now + hour, To: now + 5*hour, Class: "resv", Label: "weekly", Title: "weekly"})
	v.trim(now, 12*hour)
	v.layOut(now)
	if past := now - v.from; past > hour {
		t.Errorf("%d min of the past are empty", past/60_000)
	}
	if v.to-v.from != 12*hour {
		t.Errorf("it shows %d min", (v.to-v.from)/60_000)
	}
	got := map[string]*box{}
	for _, b := range d.Boxes {
		got[b.Class] = b
	}
	if len(d.Boxes) != 3 || got["past"].many != 5 || !strings.Contains(got["past"].Title, "5 short jobs") {
		t.Errorf("%d boxes: %+v", len(d.Boxes), got["past"])
	}
	if b := got["runs"]; !b.Beside || b.Label != "1234" || b.LabelX() != b.X+b.W {
		t.Errorf("the narrow one: %+v", b)
	}
	if b := got["resv"]; b.Label != "weekly" || b.LabelY <= got["runs"].Y {
		t.Errorf("the reservation: %+v", b)
	}
	for _, m := range v.Marks {
		if m.Text == "" {
			t.Errorf("a line without a time: %+v", v.Marks)
		}
	}
}

// TestEnded: my jobs of the last days come from accounting, the latest first, or in the order that is asked for.
func TestEnded(t *testing.T) {
	list := []*model.Record{
		{Job: 1, Task: model.NoTask, Name: "long", State: model.Completed, Start: 1000, End: 5_000_000, AllocCPUs: 4,
			NumNodes: 1},
		{Job: 2, Task: model.NoTask, Name: "failing", State: model.Failed, Start: 1000, End: 2_000_000, NumNodes: 2,
			AllocGres: []model.GresCount{{Name: model.GPUName, Count: 8}}},
		{Job: 3, Task: model.NoTask, Name: "runs", State: model.Running, Start: 1000}}
	by := map[uint16]proto.Message{proto.KindAcct: &proto.RecordsChunk{Records: list}}
	for path, want := range map[string]string{"/ended": "1 2", "/ended?sort=gpus": "2 1", "/ended?name=FAIL": "2",
		"/ended?state=completed": "1", "/ended?name=nothing": ""} {
		q, _ := asks(t, path, by)
		v, err := ended(q)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range v.(*endedView).List {
			got = append(got, l.Number)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", path, got, want)
		}
	}
	if _, size := recordSize(list[1]); size != "2 nodes, 8 GPUs" {
		t.Error(size)
	}
	if l := endedOf(list[0]); l.Size != "4 CPUs" || l.Class != "good" {
		t.Errorf("%+v", l)
	}
}

// TestPastFacts: a job that only accounting knows has its size, its limit and how it ended on its page.
func TestPastFacts(t *testing.T) {
	r := &model.Record{Job: 1, Task: model.NoTask, User: "ann", State: model.Failed, Start: 1000, End: 61_000,
		LimitS:   3600,
		NumNodes: 2, AllocCPUs: 8, AllocMemMiB: 2048, AllocGres: []model.GresCount{{Name: model.GPUName, Count: 16}},
		Exit: model.Exit{Code: 3}, StdOut: "/tmp/out"}
	q, _ := asks(t, "/job/1", map[uint16]proto.Message{proto.KindAcct: &proto.RecordsChunk{Records: []*model.Record{r}}})
	q.rest = "1"
	v, err := q.pastJob(model.JobRef{Job: 1, Task: model.NoTask})
	if err != nil {
		t.Fatal(err)
	}
	x, facts := v.(*job), map[string]string{}
	for _, f := range x.Facts {
		facts[f.Name] = f.Value
	}
	for name, want := range map[string]string{"Size": "2 nodes, 16 GPUs", "CPUs": "8", "Memory": "2G",
		"Time limit": "1:00:00", "Exit code": "3"} {
		if facts[name] != want {
			t.Errorf("%s: %q, want %q", name, facts[name], want)
		}
	}
	if x.Class != "bad" || x.Out != "/tmp/out" {
		t.Errorf("%q %q", x.Class, x.Out)
	}
	q.p.o.Cluster = told{}
	_, err = q.pastJob(model.JobRef{Job: 1, Task: model.NoTask})
	if err == nil || !strings.Contains(err.Error(), "job 1") {
		t.Errorf("a job that nobody knows: %v", err)
	}
}

// starting is a cluster on which a job begins right after the first question about jobs.
type starting struct {
	told
	asked *int
}

func (c starting) Ask(_ context.Context, _ *proto.Caller, kind uint16, rq proto.Message,
	each func([]byte) error) (time.Duration, error) {
	jobs, about := rq.(*proto.JobsRequest)
	if !about {
		return 0, nil
	}
	*c.asked++
	j := aJob(7, "ann", model.NodeAlloc{Node: "n1"})
	if *c.asked == 1 {
		j.State, j.Run = model.Pending, nil
	}
	chunk := &proto.JobsChunk{Now: 10_000_000}
	if slices.Contains(jobs.Filter.States, j.State) {
		chunk.Jobs = []*model.Job{j}
	}
	body, err := proto.Encode(chunk)
	if err != nil {
		return 0, err
	}
	return 0, each(body)
}

// TestNoJobIsLost: a job that begins while its owner's jobs are asked for is in one list.
func TestNoJobIsLost(t *testing.T) {
	q, _ := asks(t, "/", nil)
	q.p.o.Cluster = starting{asked: new(int)}
	v, err := myJobs(q)
	if err != nil {
		t.Fatal(err)
	}
	if m := v.(*mine); len(m.Run) != 1 || len(m.Wait) != 0 {
		t.Errorf("%d run, %d wait", len(m.Run), len(m.Wait))
	}
}
