package sched

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/state"
)

// connect sets a node's GPU links and cores: links=0-1*4,2-3*4 and near=0-1:0-3,2-3:4-7.
func (c *cluster) connect(d *model.NodeDef, w words) {
	total := 0
	for _, g := range d.Gres {
		total += int(g.Count)
	}
	links := make([][]int32, total)
	for i := range links {
		links[i] = make([]int32, total)
	}
	for _, text := range w.list("links") {
		var a, b, n int
		if _, err := fmt.Sscanf(text, "%d-%d*%d", &a, &b, &n); err != nil {
			c.t.Fatalf("%s: %v", c.at, err)
		}
		links[a][b], links[b][a] = int32(n), int32(n)
	}
	near := make([]model.Bits, total)
	for _, text := range w.list("near") {
		var a, b, x, y int
		if _, err := fmt.Sscanf(text, "%d-%d:%d-%d", &a, &b, &x, &y); err != nil {
			c.t.Fatalf("%s: %v", c.at, err)
		}
		for u := a; u <= b; u++ {
			near[u] = span(x, y-x+1)
		}
	}
	for i := range d.Gres {
		g := &d.Gres[i]
		if w.has("links") {
			g.Links = links[g.First : g.First+g.Count]
		}
		if w.has("near") {
			g.Near = near[g.First : g.First+g.Count]
		}
	}
}

// reservation reads a reservation.
func (c *cluster) reservation(w words) *model.Reservation {
	r := &model.Reservation{Name: w.plain[0], Start: epoch.Add(w.num("start")), Nodes: w.list("nodes"),
		Users: w.list("users"), Accounts: w.list("accounts"),
		FloatS: w.num("float"), PurgeS: w.num("purge"), DelayS: w.num("delay")}
	r.End = r.Start.Add(w.num("dur"))
	for _, f := range w.list("flags") {
		b, ok := model.ParseResvFlag(f)
		if !ok {
			c.t.Fatalf("%s: no flag %s", c.at, f)
		}
		r.Flags |= b
	}
	for _, t := range w.list("later") {
		r.Later = append(r.Later, epoch.Add(c.span(t)))
	}
	for _, l := range w.list("lics") {
		name, count, _ := strings.Cut(l, ":")
		r.Licenses = append(r.Licenses, model.LicenseCount{Name: name, Count: c.span(count)})
	}
	if w.has("cpus") || w.has("gpus") || w.has("shards") {
		for _, name := range r.Nodes {
			def := c.st.View().NodeDef(name)
			part := model.ResvPart{CPUs: int32(w.num("cpus")), MemMiB: w.num("mem"), Gres: make([]int32, len(def.Gres))}
			if k := slices.IndexFunc(def.Gres, func(g model.GresDef) bool { return g.Name == "shard" }); k >= 0 {
				part.Gres[k] = int32(w.num("shards"))
			}
			for i := range part.Gres[:min(1, len(part.Gres))] {
				part.Gres[i] = int32(w.num("gpus"))
			}
			r.Parts = append(r.Parts, part)
		}
	}
	return r
}

// span reads +SECONDS.
func (c *cluster) span(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimPrefix(text, "+"), 10, 64)
	if err != nil {
		c.t.Fatalf("%s: %v", c.at, err)
	}
	return n
}

// tick lets time pass in the state and shows the jobs that it ends.
func (c *cluster) tick(say func(string, ...any)) {
	before := c.st.View()
	c.apply(&state.Tick{})
	c.st.View().Jobs(func(j *model.Job) bool {
		if old := before.Job(j.ID); old == nil || old.State == j.State {
			return true
		}
		text := j.State.String()
		if j.State == model.Completing {
			text += map[model.StopCause]string{model.StopTimeLimit: ", to end TIMEOUT",
				model.StopDeadline: ", to end DEADLINE"}[j.Run.Stop]
		}
		say("job %d becomes %s", j.ID, text)
		return true
	})
}

// needs reads rare requests; nil if there are none.
func (c *cluster) needs(w words) *model.Needs {
	m := &model.Needs{Prefer: w.named["prefer"], Sockets: int32(w.num("S")), CoresPerSocket: int32(w.num("cps")),
		ThreadsPerCore: int32(w.num("threads")),
		TasksPerSocket: int32(w.num("tps")), TasksPerCore: int32(w.num("tpcore")), CPUsPerGPU: int32(w.num("cpg")),
		MemPerGPU: w.num("mpg"), GPUMemMiB: w.num("gpumem"),
		Contiguous: w.has("contiguous"), Spread: w.has("spread"), FewNodes: w.has("few"), ExclusiveUser: w.has("apart"),
		Share: w.has("share"), NoPreempt: w.has("stays"), TimeMinS: w.num("tmin"),
		GresBind: map[string]model.GresBinding{"enforced": model.BindEnforced,
			"disabled": model.BindDisabled}[w.named["bind"]]}
	m.Segment = int32(w.num("segment"))
	if dist := w.named["dist"]; dist != "" {
		m.Bind = &model.BindWish{Dist: dist}
	}
	switch {
	case w.has("together"):
		m.Segments = model.SegmentsTogether
	case w.has("divided"):
		m.Segments = model.SegmentsApart
	}
	for _, g := range w.list("gps") { // --gpus-per-socket, of S sockets
		typ, count, typed := strings.Cut(g, ":")
		if !typed {
			typ, count = "", g
		}
		n, _ := strconv.Atoi(count)
		m.GPUsPerSocket = append(m.GPUsPerSocket, model.GresReq{Name: "gpu", Type: typ, Count: int32(n)})
	}
	for _, k := range w.list("gpuidx") { // --gpu-index
		n, _ := strconv.Atoi(k)
		m.GPUIndex = m.GPUIndex.With(n)
	}
	if text := w.named["switches"]; text != "" {
		count, wait, _ := strings.Cut(text, "@")
		n, _ := strconv.Atoi(count)
		s, _ := strconv.Atoi(wait)
		m.Switches, m.SwitchWaitS = int32(n), int64(s)
	}
	if text := w.named["L"]; text != "" {
		m.AnyLicense = strings.Contains(text, "|")
		for _, l := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '|' }) {
			name, count, _ := strings.Cut(l, ":")
			n, _ := strconv.Atoi(count)
			m.Licenses = append(m.Licenses, model.LicenseCount{Name: name, Count: int64(max(1, n))})
		}
	}
	if reflect.DeepEqual(m, &model.Needs{}) {
		return nil
	}
	return m
}
