package state

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/price"
)

// manyNodes is a session with a job that runs on n1 to nK, all of it ready.
func manyNodes(t *testing.T, k int) (*session, *model.Job) {
	t.Helper()
	s := newSession(t)
	cfg := &model.Config{Cluster: "c", Params: model.Params{MinJobAgeS: 300}}
	cfg.Params.Rules.Contain = true
	var names []string
	for i := range 6 {
		name := fmt.Sprintf("n%d", i+1)
		names = append(names, name)
		cfg.Nodes = append(cfg.Nodes, &model.NodeDef{Name: name, CPUs: 4, ThreadsPerCore: 1, MemMiB: 1000,
			Gres: []model.GresDef{{Name: "gpu", Count: 2}}})
	}
	cfg.Partitions = []*model.Partition{{Name: "p", Nodes: names}}
	s.apply(&SetConfig{Config: cfg, Instance: 1})
	for _, name := range names {
		s.apply(&Join{Node: name, BootID: "b"})
	}
	return s, s.runOn(names[:k]...)
}

// runOn starts a job on nodes.
func (s *session) runOn(names ...string) *model.Job {
	s.t.Helper()
	id := s.apply(&Submit{Spec: &model.Spec{Name: "j", UID: 7, User: "ann", Account: model.RootAccount,
		Partitions: []string{"p"}, Requeue: true}}).Job
	st := model.Start{Job: id, Task: model.NoTask, Partition: "p", LimitS: 3600, Alloc: &model.Alloc{}}
	for _, name := range names {
		st.Alloc.Nodes = append(st.Alloc.Nodes, model.NodeAlloc{Node: name, CPUs: model.UpTo(2), Tasks: 1,
			Gres: []model.GresAlloc{{Name: "gpu", Index: model.UpTo(1)}}})
	}
	if r := s.apply(&Starts{Plan: model.Plan{Starts: []model.Start{st}}}); r.Each[0] != OK {
		s.t.Fatalf("the start: %v", r.Each)
	}
	for _, name := range names {
		s.says(id, Ready, name)
	}
	s.says(id, Started, names[0])
	return s.job(id)
}

func (s *session) job(id model.JobID) *model.Job { return s.st.View().Job(id) }

// says makes a node report on its present part of a job.
func (s *session) says(id model.JobID, kind ReportKind, node string) {
	s.t.Helper()
	j := s.job(id)
	r := Report{Kind: kind, Job: id, Attempt: j.Attempt, Node: node, At: s.now}
	if na := j.Run.Part(node); na != nil {
		r.Since = na.Since
	}
	s.apply(&Reports{Placed: true, Reports: []Report{r}})
}

func (s *session) resize(c *Resize) Refusal {
	s.t.Helper()
	if c.Attempt == 0 {
		c.Attempt = s.job(c.Job).Attempt
	}
	return s.apply(c).Each[0]
}

// sizes gives the records of a job that wait for accounting: "RESIZING n1,n2 0-10 s".
func (s *session) sizes(id model.JobID, from model.Time) (out []string) {
	s.st.View().Outbox(0, func(e Event) bool {
		if j := e.Job; j.ID == id && j.Run != nil {
			end := "-"
			if j.End != nil {
				end = fmt.Sprint((j.End.At - from) / 1000)
			}
			out = append(out, fmt.Sprintf("%d %s %v %d-%s", j.Run.Sizes, j.State, j.Run.Alloc.NodeNames(),
				(j.Run.SizedAt()-from)/1000, end))
		}
		return true
	})
	return out
}

func (s *session) want(what string, got, want any) {
	s.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestShrink: nodes that a job gives up are not given out before nothing of it is left there; the job has one record
// for each size, and is charged for what it has.
func TestShrink(t *testing.T) {
	s, j := manyNodes(t, 4)
	from := j.Run.Start
	s.now = from + 10_000
	s.want("without the first node", s.resize(&Resize{Job: j.ID, Keep: []string{"n2"}}), NotFits)
	s.want("an unknown node", s.resize(&Resize{Job: j.ID, Keep: []string{"n1", "n6"}}), NoSuchNode)
	s.want("another attempt", s.resize(&Resize{Job: j.ID, Keep: []string{"n1"}, Attempt: 9}), Outdated)
	s.want("shrink", s.resize(&Resize{Job: j.ID, Keep: []string{"n1", "n3"}, GraceS: 5}), OK)
	j = s.job(j.ID)
	s.want("nodes", j.Run.Alloc.NodeNames(), []string{"n1", "n3"})
	s.want("parts", j.Run.Busy, "0-1")
	s.want("leaving", len(j.Run.Leaving), 2)
	s.want("still booked", s.st.View().Node("n2").UsedCPUs, "0-1")
	s.want("ending there", s.st.View().Node("n2").Ending, 1)
	s.says(j.ID, Ended, "n2")
	s.want("free", s.st.View().Node("n2").UsedCPUs, "")
	s.want("free units", s.st.View().Node("n2").UsedGres, "[]")
	s.want("the job goes on", s.job(j.ID).State, model.Running)
	s.apply(&Lost{Nodes: []string{"n4"}})
	s.want("a lost node that it gave up", s.job(j.ID).State, model.Running)
	s.want("leaving", len(s.job(j.ID).Run.Leaving), 0)
	s.now = from + 30_000
	s.resize(&Resize{Job: j.ID, Keep: []string{"n1"}})
	s.now = from + 40_000
	s.says(j.ID, Ended, "n1")
	s.want("waits for what it left", s.job(j.ID).State, model.Completing)
	s.now = from + 41_000
	s.says(j.ID, Ended, "n3")
	s.want("over", s.job(j.ID).State, model.Completed)
	s.want("records", s.sizes(j.ID, from), []string{"0 RESIZING [n1 n2 n3 n4] 0-10", "1 RESIZING [n1 n3] 10-30",
		"2 COMPLETED [n1] 30-40"})
	u, _ := s.st.usage.Get(usageKey(model.RootAccount, "ann", ""))
	s.want("CPU-milliseconds", u.CPUMS, 10_000*8+20_000*4+10_000*2)
	s.want("GPU-milliseconds", u.GPUMS, 10_000*4+20_000*2+10_000*1)
}

// TestExpand: the nodes of a job that was submitted to expand another one become that one's when they are clean, and it
// may use them when they are ready.
func TestExpand(t *testing.T) {
	s, j := manyNodes(t, 1)
	more := s.runOn("n2", "n3")
	s.want("give", s.resize(&Resize{Job: more.ID, Give: j.ID}), OK)
	s.says(more.ID, Ended, "n2")
	s.want("not clean yet", s.job(j.ID).Run.Alloc.NodeNames(), []string{"n1"})
	s.says(more.ID, Ended, "n3")
	s.want("the giver", s.job(more.ID).State, model.Completed)
	j = s.job(j.ID)
	s.want("nodes", j.Run.Alloc.NodeNames(), []string{"n1", "n2", "n3"})
	s.want("not ready", j.Run.Unready, "1-2")
	version := j.Run.Version
	s.says(j.ID, Ready, "n2")
	s.want("told", s.job(j.ID).Run.Version, version)
	s.apply(&Reports{Placed: true, Reports: []Report{{Kind: PrologFailed, Job: j.ID, Attempt: j.Attempt, Node: "n3",
		Since: j.Run.Alloc.Nodes[2].Since, Text: "exit 1"}}})
	s.want("without a node whose prolog failed", s.job(j.ID).Run.Alloc.NodeNames(), []string{"n1", "n2"})
	s.want("which is drained", s.st.View().Node("n3").Admin, model.NodeDrain)
	s.says(j.ID, Ended, "n3")

	// The same node comes back: words on its earlier part count no more.
	s.resize(&Resize{Job: j.ID, Keep: []string{"n1"}})
	was := s.job(j.ID).Run.Leaving[0].Part.Since
	s.says(j.ID, Ended, "n2")
	again := s.runOn("n2")
	s.resize(&Resize{Job: again.ID, Give: j.ID})
	s.says(again.ID, Ended, "n2")
	s.want("again", s.job(j.ID).Run.Alloc.NodeNames(), []string{"n1", "n2"})
	s.apply(&Reports{Placed: true,
		Reports: []Report{{Kind: Ended, Job: j.ID, Attempt: j.Attempt, Node: "n2", Since: was}}})
	s.want("an outdated end", s.job(j.ID).State, model.Running)

	// Requeued, it asks for what it asked for at first.
	s.apply(&Stop{Targets: []model.JobRef{{Job: j.ID, Task: model.NoTask}}, Event: model.EvRequeue})
	for _, r := range s.st.View().EndOf(j.ID, j.Attempt, s.now) {
		s.apply(&Reports{Reports: []Report{r}})
	}
	j = s.job(j.ID)
	if j.State != model.Pending || j.Run != nil || !slices.Equal(j.Spec.Partitions, []string{"p"}) || j.Attempt != 2 {
		t.Errorf("requeued: %+v", j)
	}
}

// TestElasticGivesBack: an elastic job keeps what it is asked for until it agrees, or its grace is over; what it has of
// the question after giving other nodes up stays asked for.
func TestElasticGivesBack(t *testing.T) {
	s, _ := manyNodes(t, 1)
	cfg := *s.st.View().Config()
	cfg.Params.Elastic = model.ElasticRules{GraceS: 20}
	s.apply(&SetConfig{Config: &cfg, Instance: 1})
	j := s.runElastic(&model.Elastic{Max: 4, GraceS: model.NotSet}, "n2")
	grow := func(names ...string) {
		g := model.Growth{Job: j.ID, Attempt: j.Attempt}
		for _, name := range names {
			g.Parts = append(g.Parts, model.NodeAlloc{Node: name, CPUs: model.UpTo(2), Tasks: 1})
		}
		s.apply(&Starts{Plan: model.Plan{Grow: []model.Growth{g}}})
		for _, name := range names {
			s.says(j.ID, Ready, name)
		}
		j = s.job(j.ID)
	}
	ask := func(names ...string) {
		s.apply(&Starts{Plan: model.Plan{Ask: []model.Asking{{Job: j.ID, Attempt: j.Attempt, Nodes: names, For: 9}}}})
		j = s.job(j.ID)
	}
	grow("n1") // n1 is full for it: the other job has its CPUs
	s.want("a node that is not free", j.Run.Alloc.NodeNames(), []string{"n2"})
	grow("n3", "n4", "n5", "n6")
	s.want("no more than its most", j.Run.Alloc.NodeNames(), []string{"n2", "n3", "n4", "n5"})
	s.want("nothing is asked for", s.resize(&Resize{Job: j.ID, Agree: true}), NotFits)
	version := j.Run.Version
	ask("n2", "n4", "n5")
	s.want("the node of the script stays", j.Run.Recall.Nodes, []string{"n4", "n5"})
	s.want("nodes are told", j.Run.Version, version+1)
	s.want("it keeps them", len(j.Run.Alloc.Nodes), 4)
	s.want("due", j.Run.Recall.Due, s.now.Add(20))
	s.want("it gives one of them", s.resize(&Resize{Job: j.ID, Keep: []string{"n2", "n3", "n4"}}), OK)
	s.want("the other one is still asked for", s.job(j.ID).Run.Recall.Nodes, []string{"n4"})
	s.want("it agrees", s.resize(&Resize{Job: j.ID, Agree: true}), OK)
	s.want("it has given all", s.job(j.ID).Run.Recall == nil, true)
	s.want("its nodes", s.job(j.ID).Run.Alloc.NodeNames(), []string{"n2", "n3"})
	s.says(j.ID, Ended, "n4")
	s.says(j.ID, Ended, "n5")
	ask("n3")
	s.now = s.now.Add(19)
	s.apply(&Tick{})
	s.want("before its grace is over", len(s.job(j.ID).Run.Alloc.Nodes), 2)
	s.now = s.now.Add(1)
	s.apply(&Tick{})
	s.want("after it", s.job(j.ID).Run.Alloc.NodeNames(), []string{"n2"})
	ask("n2")
	s.want("never below its least", j.Run.Recall == nil, true)
}

// TestSegmentsComeAndGoWhole: an elastic job with segments gets, gives and loses whole ones, and never its first.
func TestSegmentsComeAndGoWhole(t *testing.T) {
	s, _ := manyNodes(t, 1)
	part := func(name string) model.NodeAlloc {
		return model.NodeAlloc{Node: name, CPUs: model.UpTo(2), Tasks: 1}
	}
	id := s.apply(&Submit{Spec: &model.Spec{Name: "e", UID: 7, User: "ann", Account: model.RootAccount, MinNodes: 2,
		MaxNodes: 2, Partitions: []string{"p"}, More: &model.Needs{Segment: 2,
			Elastic: &model.Elastic{Max: 6, GraceS: 20}}}}).Job
	start := func(names ...string) Refusal {
		a := &model.Alloc{}
		for _, name := range names {
			a.Nodes = append(a.Nodes, part(name))
		}
		return s.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p",
			LimitS: 3600, Alloc: a}}}}).Each[0]
	}
	s.want("a start with a segment and a half", start("n2", "n3", "n4"), NotFits)
	s.want("a start", start("n2", "n3"), OK)
	s.says(id, Started, "n2")
	j := s.job(id)
	grow := func(names ...string) []string {
		g := model.Growth{Job: id, Attempt: j.Attempt}
		for _, name := range names {
			g.Parts = append(g.Parts, part(name))
		}
		s.apply(&Starts{Plan: model.Plan{Grow: []model.Growth{g}}})
		j = s.job(id)
		return j.Run.Alloc.NodeNames()
	}
	ask := func(names ...string) []string {
		s.apply(&Starts{Plan: model.Plan{Ask: []model.Asking{{Job: id, Attempt: j.Attempt, Nodes: names, For: 9}}}})
		if j = s.job(id); j.Run.Recall == nil {
			return nil
		}
		return j.Run.Recall.Nodes
	}
	s.want("one node of a segment is not free", grow("n4", "n1", "n5", "n6"), []string{"n2", "n3", "n5", "n6"})
	s.want("half of a segment", grow("n4"), []string{"n2", "n3", "n5", "n6"})
	s.want("it is asked for half of one", ask("n6"), []string(nil))
	s.want("it is asked for its first", ask("n2", "n3"), []string(nil))
	s.want("it keeps half of one", s.resize(&Resize{Job: id, Keep: []string{"n2", "n3", "n5"}}), NotFits)
	s.want("it is asked for one", ask("n6", "n5"), []string{"n5", "n6"})
	s.want("it agrees", s.resize(&Resize{Job: id, Agree: true}), OK)
	s.want("what it has", s.job(id).Run.Alloc.NodeNames(), []string{"n2", "n3"})
	s.says(id, Ended, "n5")
	s.says(id, Ended, "n6")
	s.want("another one", grow("n4", "n5"), []string{"n2", "n3", "n4", "n5"})
	s.says(id, LaunchFailed, "n5")
	s.want("a node of it can't be used", s.job(id).Run.Alloc.NodeNames(), []string{"n2", "n3"})
}

// runElastic starts an elastic job of one node.
func (s *session) runElastic(el *model.Elastic, node string) *model.Job {
	s.t.Helper()
	id := s.apply(&Submit{Spec: &model.Spec{Name: "e", UID: 7, User: "ann", Account: model.RootAccount, MinNodes: 1,
		MaxNodes: 1, Partitions: []string{"p"}, More: &model.Needs{Elastic: el}}}).Job
	s.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 3600,
		Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: node, CPUs: model.UpTo(2), Tasks: 1}}}}}}})
	s.says(id, Started, node)
	return s.job(id)
}

// TestMinutesOfAllSizes: MaxTRESMins counts what each size of a job used, not the present size for the whole run.
func TestMinutesOfAllSizes(t *testing.T) {
	s, _ := manyNodes(t, 1)
	cfg := *s.st.View().Config()
	cfg.Params.HoldLimits = true
	s.apply(&SetConfig{Config: &cfg, Instance: 1})
	q := &model.QOS{Name: "q", UsageFactor: model.FactorOne, MaxTRESMins: []model.TRESLimit{{TRES: "cpu", Count: 20}}}
	s.apply(&Accounts{Edits: acctEdits{{Op: model.PutQOS, QOS: q}}})
	id := s.apply(&Submit{Spec: &model.Spec{Name: "e", UID: 7, User: "ann", Account: model.RootAccount, QOS: "q",
		MinNodes: 1, MaxNodes: 1, Partitions: []string{"p"}, More: &model.Needs{Elastic: &model.Elastic{Max: 4}}}}).Job
	two := model.NodeAlloc{Node: "n2", CPUs: model.UpTo(2), Tasks: 1}
	s.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 36000,
		Alloc: &model.Alloc{Nodes: []model.NodeAlloc{two}}}}}})
	s.says(id, Started, "n2")
	from := s.now
	s.now = from.Add(300) // 10 of 20 CPU minutes
	more := two
	more.Node = "n3"
	s.apply(&Starts{Plan: model.Plan{Grow: []model.Growth{{Job: id, Attempt: 1, Parts: []model.NodeAlloc{more}}}}})
	s.says(id, Ready, "n3")
	s.now = from.Add(300 + 149) // the other 10 last for 150 seconds of 4 CPUs
	s.apply(&Tick{})
	s.want("before its minutes are used up", s.job(id).State, model.Running)
	s.now = from.Add(300 + 150)
	s.apply(&Tick{})
	s.want("after that", s.job(id).Run.StopReason, model.LimitReason(model.QOSJobMins, "cpu"))
}

// TestLastNodeFails: a job whose script has ended ends with the failure of the last node that has a part of it, also if
// the node that ran the script is up; and it ended when its script did. What an older leader wrote means what it did.
func TestLastNodeFails(t *testing.T) {
	for _, how := range []string{"lost", "down twice", "rebooted", "back without it", "lost, with epilog", "both lost"} {
		t.Run(how, func(t *testing.T) {
			s, j := manyNodes(t, 2)
			if strings.HasSuffix(how, "epilog") {
				cfg := *s.st.View().Config()
				cfg.Params.Rules.CtldEpilog = []string{"/epilog"}
				s.apply(&SetConfig{Config: &cfg})
			}
			from := s.now
			s.now = from.Add(10)
			s.says(j.ID, Ending, "n1")
			if how == "down twice" {
				s.apply(&NodeEdit{Nodes: []string{"n2"}, Admin: model.NodeDown, Reason: "x", By: "root"})
			}
			s.now = from.Add(20)
			if how != "both lost" {
				s.says(j.ID, Ended, "n1")
			}
			s.want("it waits for n2", s.job(j.ID).State, model.Completing)
			s.now = from.Add(400)
			switch how {
			case "down twice":
				s.want("overdue", s.st.View().Overdue(s.now), []string{"n2"})
				s.apply(&NodeEdit{Nodes: []string{"n2"}, Admin: model.NodeDown})
			case "rebooted":
				s.apply(&Join{Node: "n2", BootID: "b2"})
			case "back without it":
				s.apply(&Join{Node: "n2", BootID: "b"})
			case "both lost":
				s.apply(&Lost{Nodes: []string{"n2", "n1"}})
			default:
				s.apply(&Lost{Nodes: []string{"n2"}})
			}
			if strings.HasSuffix(how, "epilog") {
				s.want("it waits for its epilog", s.job(j.ID).Run.Program, model.CtldEpilog)
				s.apply(&Reports{Placed: true, Reports: []Report{{Kind: ProgramPassed, Job: j.ID, Attempt: 1, At: s.now}}})
			}
			j = s.job(j.ID)
			s.want("its end", j.State, model.Completed)
			if j.End != nil {
				s.want("when it ended", j.End.At, from.Add(10))
			}
			for _, n := range []string{"n1", "n2"} {
				s.want("jobs on "+n, s.st.View().Node(n).Jobs, "[]")
			}
			s.replicas()
		})
	}
	s, j := manyNodes(t, 2)
	s.says(j.ID, Ending, "n1")
	s.says(j.ID, Ended, "n1")
	s.st.Apply(Command{At: s.now.Add(400), Body: &Lost{Nodes: []string{"n2"}}, rules: rulesTold})
	s.want("as it was written before", s.job(j.ID).State, model.Completing)
}

// TestRecallAtMostSizes: a job that has had all its sizes keeps what it was asked for; with one more, no controller
// could read a snapshot of it.
func TestRecallAtMostSizes(t *testing.T) {
	s, j := manyNodes(t, 4)
	for _, st := range []*State{s.st, s.twin, s.heir} {
		n, sp, run := *j, *j.Spec, *j.Run
		more := sp.Extra()
		more.Elastic = &model.Elastic{Max: 6, GraceS: 60}
		sp.More, sp.MinNodes, sp.MaxNodes = &more, 1, 6
		run.Sizes, run.Version, run.Sized = model.MaxSizes-1, model.MaxSizes-1, s.now
		n.Spec, n.Run = &sp, &run
		st.put(&n)
	}
	ask := model.Asking{Job: j.ID, Attempt: j.Attempt, Nodes: []string{"n3", "n4"}}
	s.apply(&Starts{Plan: model.Plan{Ask: []model.Asking{ask}}})
	s.want("it gives another one", s.resize(&Resize{Job: j.ID, Keep: []string{"n1", "n3", "n4"}}), OK)
	s.want("it is asked", s.job(j.ID).Run.Recall != nil, true)
	version := s.job(j.ID).Run.Version
	s.now = s.now.Add(100)
	s.apply(&Tick{})
	run := s.job(j.ID).Run
	s.want("it is asked", run.Recall != nil, false)
	s.want("its nodes", run.Alloc.NodeNames(), "[n1 n3 n4]")
	s.want("its sizes", run.Sizes, model.MaxSizes)
	s.want("it is told", run.Version > version, true)
	s.want("the next Tick", s.st.View().NextDue() > s.now, true)
	s.heir = restored(t, s.heir)
	s.replicas()
}

// TestPriceOfAllSizes: all sizes of a run have one minimum together, and what never began has none. By the rules of
// before each size had its own.
func TestPriceOfAllSizes(t *testing.T) {
	for rules, want := range map[uint8]string{rulesBrief: "-2.00", rulesWeighed: "-1.32"} {
		s, _ := manyNodes(t, 1)
		cfg := *s.st.View().Config()
		cfg.Params.Price = price.Table{MinS: 600, Lines: []price.Line{{Rates: []price.Rate{{TRES: "cpu", Micro: 2_000_000,
			Per: 1}}}}}
		s.apply(&SetConfig{Config: &cfg, Instance: 1})
		by := func(b Body) { s.st.Apply(Command{At: s.now, Body: b, rules: rules}) }
		begin := func(node string) model.JobID {
			id := s.apply(&Submit{Spec: &model.Spec{Name: "e", UID: 7, User: "ann", Account: model.RootAccount,
				MinNodes: 1, MaxNodes: 1, Partitions: []string{"p"}, More: &model.Needs{Elastic: &model.Elastic{Max: 4}}}}).Job
			by(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 36000,
				Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: node, CPUs: model.UpTo(2), Tasks: 1}}}}}}})
			return id
		}
		says := func(id model.JobID, kind ReportKind, node string) {
			by(&Reports{Placed: true, Reports: []Report{{Kind: kind, Job: id, Attempt: 1, At: s.now, Node: node,
				Since: s.job(id).Run.Part(node).Since}}})
		}
		id := begin("n2")
		says(id, Started, "n2")
		s.now = s.now.Add(10)
		by(&Starts{Plan: model.Plan{Grow: []model.Growth{{Job: id, Attempt: 1,
			Parts: []model.NodeAlloc{{Node: "n3", CPUs: model.UpTo(2), Tasks: 1}}}}}})
		says(id, Ready, "n3")
		s.now = s.now.Add(20)
		says(id, Ended, "n2")
		says(id, Ended, "n3")
		s.want("its state", s.job(id).State, model.Completed)
		balance := func() string { return s.st.View().Payer(model.RootAccount).Balance().String() }
		s.want("what it costs", balance(), want)
		if rules < rulesWeighed {
			continue
		}
		id = begin("n2")
		by(&Reports{Placed: true, Reports: []Report{{Kind: LaunchFailed, Job: id, Attempt: 1, At: s.now, Node: "n2",
			Taken: true}}})
		s.want("a launch that was given back", s.job(id).State, model.Pending)
		s.want("what it costs with that", balance(), want)
	}
}

// TestMinutesInOverTime: MaxTRESMins ends a job that goes on for its partition's OverTimeLimit, and holds again when
// that changes. By the rules of before it did not.
func TestMinutesInOverTime(t *testing.T) {
	for rules, want := range map[uint8]model.JobState{rulesBrief: model.Running, rulesWeighed: model.Completing} {
		s, _ := manyNodes(t, 1)
		over := func(seconds int64) {
			cfg := *s.st.View().Config()
			cfg.Params.HoldLimits = true
			p := *cfg.Partitions[0]
			p.OverTimeS = seconds
			cfg.Partitions = append([]*model.Partition{&p}, cfg.Partitions[1:]...)
			s.apply(&SetConfig{Config: &cfg, Instance: 1})
		}
		over(0)
		q := &model.QOS{Name: "q", UsageFactor: model.FactorOne, MaxTRESMins: []model.TRESLimit{{TRES: "cpu", Count: 20}}}
		s.apply(&Accounts{Edits: acctEdits{{Op: model.PutQOS, QOS: q}}})
		id := s.apply(&Submit{Spec: &model.Spec{Name: "e", UID: 7, User: "ann", Account: model.RootAccount, QOS: "q",
			MinNodes: 1, MaxNodes: 1, Partitions: []string{"p"}}}).Job
		s.apply(&Starts{Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 300,
			Alloc: &model.Alloc{Nodes: []model.NodeAlloc{{Node: "n2", CPUs: model.UpTo(2), Tasks: 1}}}}}}})
		s.says(id, Started, "n2")
		over(3600)
		from := s.now
		s.now = from.Add(599)
		s.st.Apply(Command{At: s.now, Body: &Tick{}, rules: rules})
		s.want("before its minutes are used up", s.job(id).State, model.Running)
		s.now = from.Add(600)
		s.st.Apply(Command{At: s.now, Body: &Tick{}, rules: rules})
		s.want("after that", s.job(id).State, want)
	}
}

// TestEndIsRecorded: accounting has the end of a job as soon as its script has ended.
func TestEndIsRecorded(t *testing.T) {
	s, j := manyNodes(t, 2)
	s.now = s.now.Add(10)
	s.apply(&Reports{Placed: true, Reports: []Report{{Kind: Ending, Job: j.ID, Attempt: 1, At: s.now, Node: "n1",
		Exit: model.Exit{Code: 3}}}})
	var last *model.Job
	s.st.View().Outbox(0, func(e Event) bool {
		last = e.Job
		return true
	})
	s.want("the last event's job", last.ID, j.ID)
	s.want("that it has ended", last.HasEnded(), true)
	s.want("its exit code", last.Run.Over.Exit.Code, 3)
}
