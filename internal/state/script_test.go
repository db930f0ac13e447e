package state

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
)

// The language of the transcripts, see transcript_test.go.

// words are a command's arguments.
type words struct {
	s     *session
	plain []string
	named map[string]string
}

func (w words) has(name string) bool { _, ok := w.named[name]; return ok }

func (w words) num(name string, def int64) int64 {
	text, ok := w.named[name]
	if !ok {
		return def
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		w.s.t.Fatalf("%s: %v", w.s.at, err)
	}
	return n
}

// time reads "+60": seconds after the transcript's beginning.
func (w words) time(name string) model.Time {
	if !w.has(name) {
		return 0
	}
	n, err := strconv.ParseInt(strings.TrimPrefix(w.named[name], "+"), 10, 64)
	if err != nil {
		w.s.t.Fatalf("%s: %v", w.s.at, err)
	}
	return epoch.Add(n)
}

func (w words) list(name string) []string {
	if !w.has(name) || w.named[name] == "" {
		return nil
	}
	return strings.Split(w.named[name], ",")
}

var flags = []string{"share", "hold", "kill", "requeue", "exclusive", "oom", "unknown", "admin", "keep",
	"begun", "keepdep"}

func (s *session) do(out *bytes.Buffer, line string) {
	fields := strings.Fields(line)
	w := words{s: s, named: map[string]string{}}
	for _, f := range fields[1:] {
		if name, value, ok := strings.Cut(f, "="); ok {
			w.named[name] = value
		} else if slices.Contains(flags, f) {
			w.named[f] = ""
		} else {
			w.plain = append(w.plain, f)
		}
	}
	say := func(format string, a ...any) { fmt.Fprintf(out, "  "+format+"\n", a...) }
	var res Result
	switch fields[0] {
	case "node":
		s.cfg.Nodes = append(slices.DeleteFunc(slices.Clone(s.cfg.Nodes),
			func(n *model.NodeDef) bool { return n.Name == w.plain[0] }), s.nodeDef(w))
	case "part":
		p := &model.Partition{Name: w.plain[0], Nodes: w.list("nodes")}
		if w.has("exclusive") {
			p.OverSubscribe = "EXCLUSIVE"
		}
		if w.named["state"] == "down" {
			p.State = model.PartDown
		}
		p.ShareMax = int32(w.num("yes", w.num("force", 0)))
		p.ShareForced = w.has("force")
		if p.OverTimeS = model.Unlimited; w.named["over"] != "unlimited" {
			p.OverTimeS = w.num("over", 0)
		}
		s.cfg.Partitions = append(slices.DeleteFunc(slices.Clone(s.cfg.Partitions),
			func(q *model.Partition) bool { return q.Name == p.Name }), p)
	case "param":
		p := &s.cfg.Params
		p.MinJobAgeS, p.MaxJobs = w.num("minjobage", p.MinJobAgeS), int32(w.num("maxjobs", int64(p.MaxJobs)))
		p.ReturnToService = int32(w.num("rts", int64(p.ReturnToService)))
		for _, x := range []struct {
			name string
			at   *[]int32
		}{{"exit", &p.Exits.Requeue}, {"exithold", &p.Exits.Hold}} {
			if w.has(x.name) {
				*x.at = []int32{int32(w.num(x.name, 0))}
			}
		}
		p.Exits.Most = int32(w.num("exits", int64(p.Exits.Most)))
		p.KillInvalidDep, p.MaxDepDepth = w.num("killdep", 0) == 1, int32(w.num("depdepth", 0))
	case "configure":
		s.cfg.Nodes = slices.DeleteFunc(slices.Clone(s.cfg.Nodes),
			func(n *model.NodeDef) bool { return n.Name == w.named["drop"] })
		s.cfg.Partitions = slices.DeleteFunc(slices.Clone(s.cfg.Partitions),
			func(p *model.Partition) bool { return p.Name == w.named["droppart"] })
		cfg := s.cfg
		cfg.Accounts = []string{"acc"}
		res = s.apply(&SetConfig{Config: &cfg})
	case "join":
		j := &Join{Node: w.plain[0], BootID: "b1", Version: "1", Problem: w.named["problem"]}
		if w.has("boot") {
			j.BootID, j.BootAt = w.named["boot"], s.now
		}
		for _, k := range w.list("known") {
			id, attempt := s.attempt(k)
			j.Known = append(j.Known, Report{Job: id, Attempt: attempt})
		}
		res = s.apply(j)
	case "submit":
		if res = s.apply(s.submit(w)); res.Refusal == OK {
			say("job %d", res.Job)
		}
	case "het":
		if res = s.apply(s.submitHet(w)); res.Refusal == OK {
			say("job %d", res.Job)
		}
	case "together":
		res = s.apply(s.startSet(w))
	case "start":
		res = s.apply(s.start(w))
	case "started", "ended", "launchfailed":
		id, attempt := s.attempt(w.plain[0])
		r := Report{Kind: map[string]ReportKind{"started": Started, "ended": Ended, "launchfailed": LaunchFailed}[fields[0]],
			Job: id, Attempt: attempt,
			At: s.now, Text: strings.Join(w.plain[1:], " ")}
		if w.has("at") {
			r.At = w.time("at")
		}
		r.Exit = model.Exit{Code: int32(w.num("code", 0)), Signal: int32(w.num("signal", 0)), OOM: w.has("oom"),
			Unknown: w.has("unknown")}
		if res = s.apply(&Reports{Reports: []Report{r}}); !res.Changed {
			say("changes nothing")
		}
	case "step":
		id, attempt := s.attempt(w.plain[0])
		r := Report{Kind: StepEnded, Job: id, Attempt: attempt, At: s.now,
			Step: &model.Step{ID: int32(w.num("id", 0)), Tasks: 1, Exit: model.Exit{Code: int32(w.num("code", 0))}}}
		if res = s.apply(&Reports{Reports: []Report{r}}); !res.Changed {
			say("changes nothing")
		}
	case "cancel", "requeue", "preempt":
		ev := map[string]model.Event{"cancel": model.EvCancel, "requeue": model.EvRequeue,
			"preempt": model.EvPreempt}[fields[0]]
		res = s.apply(&Stop{Targets: s.targets(w), Event: ev, Hold: w.has("hold"), UID: uint32(w.num("uid", 7))})
	case "suspend", "goon":
		res = s.apply(&Suspend{Targets: s.targets(w), Resume: fields[0] == "goon"})
	case "turn":
		res = s.apply(&Suspend{Turn: model.Turn{Sleep: s.ids(w.list("sleep")), Wake: s.ids(w.list("wake"))}})
	case "makeroom":
		res = s.apply(&Starts{Plan: model.Plan{Preempt: []model.Preemption{{Job: s.ids(w.plain)[0],
			For: model.JobID(w.num("for", 0)), Sleep: true}}}})
	case "yield":
		res = s.apply(&Starts{Plan: model.Plan{Preempt: []model.Preemption{{Job: s.ids(w.plain)[0],
			For: model.JobID(w.num("for", 0)), Cancel: true, NoticeS: w.num("notice", 60)}}}})
	case "wake":
		res = s.apply(&Starts{Plan: model.Plan{Resume: s.ids(w.plain)}})
	case "tallies":
		for _, line := range tallyLines(s.st) {
			say("%s", line)
		}
	case "accrue":
		res = s.accrue(w)
	case "hold", "release":
		e := &Edit{Targets: s.targets(w), Set: []Field{SetHold}}
		if w.has("begun") {
			e.Set = append(e.Set, SetBegun)
		}
		if fields[0] == "hold" {
			e.Hold = model.HeldByUser
			if w.has("admin") {
				e.Hold = model.HeldByAdmin
			}
		}
		res = s.apply(e)
	case "set":
		res = s.apply(s.edit(w))
	case "lost":
		res = s.apply(&Lost{Nodes: strings.Split(w.plain[0], ",")})
	case "drain", "down", "resume":
		admin := map[string]model.NodeAdmin{"drain": model.NodeDrain, "down": model.NodeDown,
			"resume": model.NodeUp}[fields[0]]
		e := &NodeEdit{Nodes: strings.Split(w.plain[0], ","), Admin: admin, Reason: w.named["reason"], By: "root",
			Keep: w.has("keep")}
		if gpu, ok := w.named["gpu"]; ok {
			e.Gres = "gpu"
			for _, text := range strings.Split(gpu, ",") {
				n, err := strconv.Atoi(text)
				if err != nil {
					s.t.Fatalf("%s: %v", s.at, err)
				}
				e.Units = append(e.Units, int32(n))
			}
		}
		res = s.apply(e)
	case "tells":
		u := &Units{Node: w.plain[0]}
		for _, text := range w.plain[1:] {
			f := strings.SplitN(text, ":", 3)
			index, err := strconv.Atoi(f[0])
			if err != nil || len(f) != 3 {
				s.t.Fatalf("%s: %s: write INDEX:STAMP|used:TEXT", s.at, text)
			}
			t := model.UnitTell{Name: "gpu", Index: int32(index), Kind: model.OutInUse, Text: f[2]}
			if stamp, err := strconv.ParseUint(f[1], 10, 64); err == nil {
				t.Kind, t.Stamp = model.OutFault, stamp
			}
			u.Tells = append(u.Tells, t)
		}
		res = s.apply(u)
	case "reason":
		id, _ := strconv.Atoi(w.plain[0])
		res = s.apply(&Starts{Plan: model.Plan{Reasons: []model.ReasonSet{{Job: model.JobID(id),
			Reason: model.ReasonResources, Why: strings.Join(w.plain[1:], " ")}}}})
	case "tick", "wait":
		if len(w.plain) > 0 {
			n, err := strconv.ParseInt(strings.TrimPrefix(w.plain[0], "+"), 10, 64)
			if err != nil {
				s.t.Fatalf("%s: %v", s.at, err)
			}
			s.now = s.now.Add(n)
		}
		if fields[0] == "tick" {
			res = s.apply(&Tick{Limit: int32(w.num("limit", 0))})
		}
	case "trim":
		n, err := strconv.ParseUint(w.plain[0], 10, 64)
		if err != nil {
			s.t.Fatalf("%s: %v", s.at, err)
		}
		res = s.apply(&Trim{Seq: n})
	case "outbox":
		s.st.View().Outbox(0, func(e Event) bool {
			seq, j, step := e.Seq, e.Job, e.Step
			if a := e.Audit; a != nil {
				say("%d: %s %s %s by %s: %s", seq, a.Event, a.What, a.Name, a.By, a.Text)
				return true
			}
			if step != nil {
				say("%d: step %d.%d of attempt %d: %s", seq, j.ID, step.ID, j.Attempt, step.State())
				return true
			}
			say("%d: %s", seq, jobLine(j))
			return true
		})
	case "mails":
		s.st.View().Mails(func(seq uint64, m *Mail) bool {
			if a := m.Array; a != nil {
				say("%d: %s array %d: done %d, failed %d, ill %d, exit %d-%d", seq, m.What, a.ID, a.Done, a.Failed, a.Ill,
					a.LeastExit, a.MostExit)
				return true
			}
			say("%d: %s %s", seq, m.What, jobLine(m.Job))
			return true
		})
	case "mailed":
		res = s.apply(&Mailed{Seq: uint64(s.ids(w.plain)[0])})
	case "usage":
		s.st.View().Usages(func(u *Usage) bool { say("%+v", *u); return true })
	case "blobs":
		s.st.blobs.Scan(func(k string, b *model.Blob) bool { say("%s: %d refs", k, b.Refs); return true })
	case "due":
		say("%s", clock(s.st.View().NextDue()))
	case "next":
		s.st.ready.Scan(func(part string, _ *queue) bool {
			var ids []string
			s.st.View().Ready(part, func(j *model.Job) bool { ids = append(ids, name(j)); return true })
			say("%s: %s", part, strings.Join(ids, " "))
			return true
		})
	default:
		s.t.Fatalf("%s: unknown command", s.at)
	}
	if res.Refusal != OK {
		say("refused: %s", res.Refusal)
	}
	for i, r := range res.Each {
		if r != OK {
			say("%d refused: %s", i+1, r)
		}
	}
	now := dumpOf(s.st.View())
	for _, l := range without(s.dump, now) {
		say("- %s", l)
	}
	for _, l := range without(now, s.dump) {
		say("+ %s", l)
	}
	s.dump = now
}

func (s *session) nodeDef(w words) *model.NodeDef {
	d := &model.NodeDef{Name: w.plain[0], CPUs: int32(w.num("cpus", 4)), ThreadsPerCore: 1, MemMiB: w.num("mem", 4000)}
	for _, g := range w.list("gpu") {
		typ, count, _ := strings.Cut(g, ":")
		n, err := strconv.Atoi(count)
		if err != nil {
			s.t.Fatalf("%s: %v", s.at, err)
		}
		first := int32(0)
		for _, have := range d.Gres {
			first += have.Count
		}
		d.Gres = append(d.Gres, model.GresDef{Name: "gpu", Type: typ, First: first, Count: int32(n)})
	}
	return d
}

func (s *session) submit(w words) *Submit {
	sp := &model.Spec{Name: w.named["name"], UID: uint32(w.num("uid", 7)), User: "u" + fmt.Sprint(w.num("uid", 7)),
		Account:    "acc",
		Partitions: []string{"p"}, Begin: w.time("begin"), LimitS: w.num("limit", 0), KillOnDep: w.has("kill"),
		Requeue:   w.has("requeue"),
		Exclusive: w.has("exclusive"), DepText: w.named["dep"]}
	if w.has("part") {
		sp.Partitions = w.list("part")
	}
	if w.has("account") {
		sp.Account = w.named["account"]
	}
	sp.QOS = w.named["qos"]
	if w.has("share") {
		sp.More = &model.Needs{Share: true}
	}
	if w.has("keepdep") {
		sp.More = &model.Needs{KeepOnDep: true}
	}
	if w.has("mail") {
		types, err := model.ParseMailTypes(w.named["mail"])
		if err != nil {
			s.t.Fatalf("%s: %v", s.at, err)
		}
		sp.More = &model.Needs{Mail: &model.MailWish{User: sp.User, Types: types}}
	}
	c := &Submit{RequestID: w.named["req"], Spec: sp, Priority: uint32(w.num("prio", 100))}
	if w.has("hold") {
		c.Hold = model.HeldByUser
	}
	var err error
	if sp.Deps, sp.DepAny, err = model.ParseDeps(w.named["dep"]); err != nil {
		s.t.Fatalf("%s: %v", s.at, err)
	}
	if w.has("array") {
		if sp.Tasklist, sp.Throttle, err = model.ParseTaskSet(w.named["array"], 1<<20); err != nil {
			s.t.Fatalf("%s: %v", s.at, err)
		}
	}
	key, missing, _ := strings.Cut(w.named["script"], ":")
	c.Script = model.Blob{Key: key, Data: []byte(key)}
	if missing != "" {
		c.Script.Data = nil
	}
	return c
}

// submitHet submits as many equal components as w says.
func (s *session) submitHet(w words) *SubmitHet {
	c := &SubmitHet{RequestID: w.named["req"], Holder: model.Blob{Key: "holder", Data: []byte("h")},
		Script: model.Blob{Key: "script", Data: []byte("s")}}
	for range s.ids(w.plain)[0] {
		one := s.submit(w)
		c.Parts = append(c.Parts, HetPart{Spec: one.Spec, Priority: one.Priority, Hold: one.Hold})
	}
	return c
}

// startSet starts components together: "12:n1 13:n1".
func (s *session) startSet(w words) *Starts {
	c := &Starts{Epoch: 1}
	taken := map[string]int{}
	for _, text := range w.plain {
		id, node, _ := strings.Cut(text, ":")
		at := taken[node]
		taken[node]++
		one := s.start(words{s: s, plain: []string{id, node}, named: map[string]string{"on": strconv.Itoa(at)}})
		c.Plan.Starts = append(c.Plan.Starts, one.Plan.Starts...)
	}
	return c
}

// ids reads job numbers.
func (s *session) ids(list []string) (out []model.JobID) {
	for _, text := range list {
		n, err := strconv.Atoi(text)
		if err != nil {
			s.t.Fatalf("%s: %v", s.at, err)
		}
		out = append(out, model.JobID(n))
	}
	return out
}

func (s *session) start(w words) *Starts {
	idText, taskText, isTask := strings.Cut(w.plain[0], "_")
	id, err := strconv.Atoi(idText)
	if err != nil {
		s.t.Fatalf("%s: %v", s.at, err)
	}
	st := model.Start{Job: model.JobID(id), Task: model.NoTask, Partition: "p", LimitS: model.Unlimited,
		Alloc: &model.Alloc{}}
	if isTask {
		n, err := strconv.Atoi(taskText)
		if err != nil {
			s.t.Fatalf("%s: %v", s.at, err)
		}
		st.Task = int32(n)
	}
	if w.has("part") {
		st.Partition = w.named["part"]
	}
	v := s.st.View()
	if j := v.Job(st.Job); j != nil && j.Spec.LimitS != 0 {
		st.LimitS = j.Spec.LimitS
	}
	for _, name := range strings.Split(w.plain[1], ",") {
		na := model.NodeAlloc{Node: name, Tasks: 1, MemMiB: w.num("mem", 100)}
		want := int(w.num("cpus", 1))
		if n := v.Node(name); n != nil {
			na.CPUs = model.UpTo(int(n.Def.CPUs)).Minus(n.UsedCPUs).First(want)
		}
		if na.CPUs == nil {
			na.CPUs = model.UpTo(want)
		}
		if w.has("on") {
			set, _, err := model.ParseTaskSet(w.named["on"], 100)
			if err != nil {
				s.t.Fatalf("%s: %v", s.at, err)
			}
			na.CPUs = nil
			set.Each(func(i int32) bool { na.CPUs = na.CPUs.With(int(i)); return true })
		}
		if w.has("gpu") {
			set, _, err := model.ParseTaskSet(w.named["gpu"], 100)
			if err != nil {
				s.t.Fatalf("%s: %v", s.at, err)
			}
			var b model.Bits
			set.Each(func(i int32) bool { b = b.With(int(i)); return true })
			na.Gres = []model.GresAlloc{{Name: "gpu", Index: b}}
		}
		st.Alloc.Nodes = append(st.Alloc.Nodes, na)
	}
	return &Starts{Epoch: 1, Plan: model.Plan{Starts: []model.Start{st}}}
}

func (s *session) edit(w words) *Edit {
	e := &Edit{Targets: s.targets(w)}
	set := func(name string, f Field) bool {
		if w.has(name) {
			e.Set = append(e.Set, f)
		}
		return w.has(name)
	}
	if set("prio", SetPriority) {
		e.Priority = uint32(w.num("prio", 0))
	}
	if set("begin", SetBegin) {
		e.Begin = w.time("begin")
	}
	if set("limit", SetLimit) {
		e.LimitS = w.num("limit", 0)
	}
	if set("throttle", SetThrottle) {
		e.Throttle = int32(w.num("throttle", 0))
	}
	if set("comment", SetAdminComment) {
		e.Comment = w.named["comment"]
	}
	j := s.st.View().Job(e.Targets[0].Job)
	if j == nil {
		return e
	}
	sp := *j.Spec
	if set("dep", SetDeps) {
		var err error
		if e.Deps, sp.DepAny, err = model.ParseDeps(w.named["dep"]); err != nil {
			s.t.Fatalf("%s: %v", s.at, err)
		}
		e.Spec = &sp
	}
	if w.has("part") {
		sp.Partitions, e.Spec, e.Set = w.list("part"), &sp, append(e.Set, SetSpec)
	}
	if set("name", SetSpec) {
		sp.Name, e.Spec = w.named["name"], &sp
	}
	return e
}

// attempt reads "5" (its present attempt) or "5.2".
func (s *session) attempt(text string) (model.JobID, uint32) {
	idText, attempt, ok := strings.Cut(text, ".")
	id, err := strconv.Atoi(idText)
	if err != nil {
		s.t.Fatalf("%s: %v", s.at, err)
	}
	if ok {
		n, err := strconv.Atoi(attempt)
		if err != nil {
			s.t.Fatalf("%s: %v", s.at, err)
		}
		return model.JobID(id), uint32(n)
	}
	if j := s.st.View().Job(model.JobID(id)); j != nil {
		return j.ID, j.Attempt
	}
	return model.JobID(id), 1
}

func (s *session) targets(w words) []model.JobRef {
	var out []model.JobRef
	for _, text := range w.plain {
		text, part, isPart := strings.Cut(text, "+")
		idText, tasks, isTask := strings.Cut(text, "_")
		id, err := strconv.Atoi(idText)
		if err != nil {
			s.t.Fatalf("%s: %v", s.at, err)
		}
		t := model.JobRef{Job: model.JobID(id), Task: model.NoTask}
		if isPart {
			t.Het = 1 + int32(s.ids([]string{part})[0])
		}
		if isTask {
			if t.Tasks, _, err = model.ParseTaskSet(tasks, 1<<30); err != nil {
				s.t.Fatalf("%s: %v", s.at, err)
			}
			if t.Tasks.Count() == 1 {
				t.Task, t.Tasks = t.Tasks.Min(), nil
			}
		}
		out = append(out, t)
	}
	return out
}
