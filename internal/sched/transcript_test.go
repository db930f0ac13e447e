package sched

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gbatch/internal/golden"
	"gbatch/internal/model"
	"gbatch/internal/sched/lineup"
	"gbatch/internal/state"
)

// A transcript in testdata/*.txt is a queue at work. A line that is not indented is a command (or a comment, #); the
// indented lines under it are its result. `go test -rewrite` writes the indented lines anew.
//
//	node n1,n2 cpus=4 [threads=2] [mem=4000] [gpu=a100:2,v100:1] [feat=ib,ssd] [weight=2] [tmp=100]
//	     [more=bw:loose*100,lic:explicit*3 (not used up; only for who asks)]
//	     [shard=4] [mps=100] [onesharing] [gpumem=40000]          each GPU's shares, and its memory
//	     [sockets=2] [links=0-1*4,2-3*4] [near=0-1:0-3,2-3:4-7]   GPUs' links to each other, and the CPUs near them
//	part p [nodes=n1,n2] [tier=2] [maxtime=60] [minnodes=] [maxnodes=] [maxcpus=] [defmempercpu=] [defmempernode=]
//	     [maxmempercpu=] [maxmempernode=] [deftime=] [exclusive] [private] [state=down|drain|inactive]
//	     [force=N] [yes=N] [reqresv] [accounts=] [notaccounts=] [qoslist=] [notqos=] [qos=]
//	     [reserve=20 (percent)] [order=fifo|priority|fairshare|capacity]
//	param [limitstop] [youngest] [strict] [wholecores] [nomem] [defmempercpu=]
//	     [defmempernode=] [maxmempercpu=] [maxmempernode=]
//	switch s1 nodes=n1,n2 | switch s0 switches=s1,s2        the network
//	blocks sizes=2,4 | block b1 nodes=n1,n2                 likewise
//	topology NAME [default]     what follows is this topology's; part p topology=NAME      place NODE NAME:UNIT
//	param [optional] [dragonfly]                            TopologyParam
//	param pause=60 grace=30                     of elastic jobs
//	license foo=2,bar                           what the cluster has
//	up                                          the configuration takes effect, all nodes register
//	submit [N=1-2] [n=4] [tpn=2] [c=2] [mincpus=4] [mem=100|all] [mempercpu=10] [gres=gpu:a100:2] [G=4] [gpt=1]
//	       [half=500 (thousandths of a GPU's shards)] [gpumem=]
//	       [C=ib&ssd] [w=n1] [x=n2] [alone] [over] [prio=] [t=60] [array=0-9%2] [uid=] [part=p,q] [tmp=]
//	       [elastic=2-8 [grace=10]] [expedite]
//	       [tmin=30] [deadline=+600 from the beginning]
//	het n=1 : n=4 G=2 : ...                     a heterogeneous job, the words of submit for each component
//	policy fifo|easy|all|reserve=N [sjbf] [keep] [resolution=] [window=] [age=] [tests=] [userjobs=] [partjobs=] [ahead=]
//	       [userpartjobs=] [assocjobs=] [arrayresv=] [minprio=] [busy] [depth=]
//	                                            how the cycles from here on backfill
//	cycle [starts=N] [depth=N]                  plan, apply, show starts and whoever waits, with its reservation
//	wakes                                       when the cycle asks to be called again, if nothing happens before
//	agree ID...                                 elastic jobs give what they are asked for
//	clear                                       every job is cancelled
//	run                                         whatever has resources runs      suspend|goon ID...      by an operator
//	gang slice=30      turn                     who stops and who goes on of those that share CPUs
//	tick                                        time passes in the state; show whom it ends
//	reserve NAME nodes= start= dur= [users=] [accounts=] [flags=MAINT,FLEX] [lics=foo:2]
//	        [cpus=2 mem= gpus=1 shards=2 of each node] [later=+SECONDS,...] [float=SECONDS]
//	        [purge=SECONDS]      unreserve NAME
//	param settle=60 [byparts]                   CompleteWait, reduce_completing_frag      cancel ID...
//	param power=60                              nodes are powered down and up, within so many seconds
//	off|rise|noshow NODE...                     nodes are off, on their way up, or did not come up
//	end ID...      drain|resume NODE... [gpu=0,1]      lost|join NODE...
//	estimate ID [part]      wait +60      hold|release ID
//	why ID [easy]                               explain a job, in order of submission or with backfill

func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			c := newCluster(t)
			for n, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
				if strings.HasPrefix(line, " ") {
					continue
				}
				fmt.Fprintln(&out, line)
				if line != "" && line[0] != '#' {
					c.at = fmt.Sprintf("%s:%d: %s", file, n+1, line)
					c.do(&out, line)
				}
			}
			golden.Compare(t, file, out.Bytes())
		})
	}
}

// storedPoints are priorities without weights.
type storedPoints struct{}

func (storedPoints) Epoch() uint64 { return 1 }

func (storedPoints) Priority(j *model.Job, _ *model.Partition) uint64 { return uint64(j.Priority) }

const epoch model.Time = 1_000_000_000

// cluster is a state machine with a scheduler over it.
type cluster struct {
	t   testing.TB
	at  string
	now model.Time
	st  *state.State
	cfg model.Config

	bf        Backfill
	partDepth int
	fair      func(account, user, part string) float64
	kept      *Planner
	lines     *lineup.Order // of kept
	lazy      bool          // the state's invariants are checked once a plan is applied, not after every command
}

func newCluster(t testing.TB) *cluster {
	return &cluster{t: t, now: epoch, st: state.New(), kept: NewPlanner(),
		cfg: model.Config{Cluster: "test",
			Params: model.Params{MemConsumed: true, MinJobAgeS: 300, ReturnToService: 2, SwitchWaitS: 300,
				ExpediteHoldS: 600}}}
}

func (c *cluster) apply(b state.Body) state.Result {
	c.t.Helper()
	res := c.st.Apply(state.Command{At: c.now, Body: b})
	if _, starts := b.(*state.Starts); c.lazy && !starts {
		return res
	}
	if err := c.st.Check(); err != nil {
		c.t.Fatalf("%s: %v", c.at, err)
	}
	return res
}

// up makes the configuration effective and lets every node register.
func (c *cluster) up() {
	cfg := c.cfg
	c.apply(&state.SetConfig{Config: &cfg})
	for _, n := range c.cfg.Nodes {
		c.apply(&state.Join{Node: n.Name, BootID: "b"})
	}
}

// cycle plans and applies, and checks what every plan must hold.
func (c *cluster) cycle(p Policy) model.Plan {
	c.t.Helper()
	v := c.st.View()
	if lineup.Own(v.Config()) {
		fair := c.fair
		if fair == nil {
			fair = func(string, string, string) float64 { return 0 }
		}
		p.Order = lineup.New(v, nil, storedPoints{}, fair)
		c.lines = lineup.Next(c.lines, v, nil, storedPoints{}, fair)
	}
	plan := Plan(v, c.now, p)
	goesOn := p
	if lineup.Own(v.Config()) {
		goesOn.Order = c.lines // what the last pass knew, and what has changed
	}
	if kept := c.kept.Plan(v, c.now, goesOn); p.Backfill.Keep {
		plan = kept // a new planner would not know the promises
		res := c.apply(&state.Starts{Plan: plan})
		for i, r := range res.Each {
			if r != state.OK {
				c.t.Fatalf("%s: the plan's start %+v is refused: %s", c.at, plan.Starts[i], r)
			}
		}
		return plan
	} else if !reflect.DeepEqual(plan, kept) {
		c.t.Fatalf("%s: a planner that has planned before gives another plan:\n%+v\n%+v", c.at, plan, kept)
	}
	if again := Plan(v, c.now, p); !reflect.DeepEqual(plan, again) {
		c.t.Fatalf("%s: the same arguments give another plan:\n%+v\n%+v", c.at, plan, again)
	}
	c.undivided(v, plan)
	res := c.apply(&state.Starts{Plan: plan})
	c.wholeSegments()
	for i, r := range res.Each {
		if r != state.OK {
			c.t.Fatalf("%s: the plan's start %+v is refused: %s", c.at, plan.Starts[i], r)
		}
	}
	if slices.ContainsFunc(plan.Preempt, func(v model.Preemption) bool { return v.Sleep }) || len(plan.Resume) > 0 ||
		len(plan.Ask) > 0 {
		return plan // there is room now
	}
	if p.PartDepth == 0 && (len(plan.Starts) < p.MaxStarts || p.MaxStarts == 0 && len(plan.Starts) < DefaultMaxStarts) {
		if lineup.Own(v.Config()) {
			return plan // the order depends on what runs
		}
		next := Plan(c.st.View(), c.now, p)
		for _, s := range next.Starts {
			// The first try does not always find nodes for tasks and per-job resources together, see ordersFor.
			knapsack := len(s.Alloc.Nodes) > 1 &&
				slices.ContainsFunc(c.st.View().Job(s.Job).Spec.Gres, func(g model.GresReq) bool { return g.Per == model.PerJob })
			if !knapsack {
				c.t.Fatalf("%s: a second plan starts more: %s", c.at, startLine(&s))
			}
		}
		c.apply(&state.Starts{Plan: next})
		if third := Plan(c.st.View(), c.now, p); len(next.Starts)+len(next.Ask) == 0 &&
			len(third.Starts)+len(third.Reasons) > 0 {
			c.t.Fatalf("%s: a queue at rest is planned anew: %+v", c.at, third)
		}
	}
	return plan
}

// clear ends every job.
func (c *cluster) clear() {
	var stop state.Stop
	var ended state.Reports
	stop.Event = model.EvCancel
	c.st.View().Jobs(func(j *model.Job) bool {
		if !j.State.Finished() {
			stop.Targets = append(stop.Targets, model.JobRef{Job: j.ID, Task: model.NoTask})
		}
		if j.State.HasResources() {
			ended.Reports = append(ended.Reports, state.Report{Kind: state.Ended, Job: j.ID, Attempt: j.Attempt, At: c.now})
		}
		return true
	})
	c.apply(&stop)
	c.apply(&ended)
}

type words struct {
	c     *cluster
	plain []string
	named map[string]string
}

func (w words) has(name string) bool { _, ok := w.named[name]; return ok }

func (w words) num(name string) int64 {
	text, ok := w.named[name]
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		w.c.t.Fatalf("%s: %v", w.c.at, err)
	}
	return n
}

func (w words) list(name string) []string {
	if w.named[name] == "" {
		return nil
	}
	return strings.Split(w.named[name], ",")
}

func (c *cluster) do(out *bytes.Buffer, line string) {
	fields := strings.Fields(line)
	w := words{c: c, named: map[string]string{}}
	for _, f := range fields[1:] {
		if name, value, ok := strings.Cut(f, "="); ok {
			w.named[name] = value
		} else if slices.Contains([]string{"wholecores", "nomem", "exclusive", "private", "alone", "over", "requeue", "lln",
			"contiguous", "spread", "few", "apart", "share", "stays", "sjbf", "keep", "onesharing", "reqresv", "busy",
			"together", "divided", "expedite"}, f) {
			w.named[f] = ""
		} else {
			w.plain = append(w.plain, f)
		}
	}
	say := func(format string, a ...any) { fmt.Fprintf(out, "  "+format+"\n", a...) }
	switch fields[0] {
	case "node":
		c.nodes(w)
	case "part":
		c.part(w)
	case "preempt":
		c.preemption(w)
	case "ended":
		c.endStopped(say)
	case "param":
		p := &c.cfg.Params
		p.WholeSockets = slices.Contains(w.plain, "wholesockets")
		p.WholeCores, p.MemConsumed = w.has("wholecores") || p.WholeSockets, !w.has("nomem")
		p.WholeNodes = slices.Contains(w.plain, "linear")
		p.CyclicCores = slices.Contains(w.plain, "cyclic")
		p.LimitStop, p.Preempt.Youngest = slices.Contains(w.plain, "limitstop"), slices.Contains(w.plain, "youngest")
		p.Preempt.Strict = slices.Contains(w.plain, "strict")
		p.TopoOptional, p.Dragonfly = slices.Contains(w.plain, "optional"), slices.Contains(w.plain, "dragonfly")
		p.Cache = model.GPUCache{Tags: int32(w.num("models")), TimeS: 3600}
		p.Elastic = model.ElasticRules{PauseS: w.num("pause"), GraceS: w.num("grace")}
		p.CompleteWaitS, p.CompleteParts = w.num("settle"), slices.Contains(w.plain, "byparts")
		if w.has("power") {
			p.Power = model.PowerRules{Suspend: "/off", Resume: "/on", ResumeTimeoutS: w.num("power")}
		}
		p.DefMemPerCPU, p.DefMemPerNode = w.num("defmempercpu"), w.num("defmempernode")
		p.MaxMemPerCPU, p.MaxMemPerNode = w.num("maxmempercpu"), w.num("maxmempernode")
	case "topology":
		c.cfg.Topologies = append(c.cfg.Topologies, &model.Topology{Name: w.plain[0],
			Default: slices.Contains(w.plain, "default")})
	case "blocks", "block", "switch":
		c.network(fields[0], w)
	case "place":
		def := *c.st.View().NodeDef(w.plain[0])
		def.Topology = w.plain[1]
		c.apply(&state.Define{Nodes: []*model.NodeDef{&def}})
	case "license":
		for name := range w.named {
			c.cfg.Licenses = append(c.cfg.Licenses, model.LicenseCount{Name: name, Count: w.num(name)})
		}
	case "up":
		c.up()
	case "submit":
		sp := c.spec(w)
		prio := uint32(100)
		if w.has("prio") {
			prio = uint32(w.num("prio"))
		}
		for _, name := range sp.Partitions {
			if part := c.st.View().Partition(name); part != nil {
				if why, _ := Possible(c.st.View(), sp, part); why != CanRun {
					say("never in %s: %s", name, why)
				}
			}
		}
		if res := c.apply(&state.Submit{Spec: sp, Priority: prio}); res.Refusal != state.OK {
			say("refused: %s", strings.TrimSuffix(res.Refusal.String()+" "+res.Reason.String(), " None"))
		} else {
			say("job %d", res.Job)
		}
	case "het":
		rq := &state.SubmitHet{}
		for part := range strings.SplitSeq(strings.Join(fields[1:], " "), " : ") {
			named := map[string]string{}
			for _, f := range strings.Fields(part) {
				name, value, _ := strings.Cut(f, "=")
				named[name] = value
			}
			rq.Parts = append(rq.Parts, state.HetPart{Spec: c.spec(words{c: c, named: named}), Priority: 100})
		}
		say("job %d", c.apply(rq).Job)
	case "policy":
		c.backfill(w)
	case "cycle":
		plan := c.cycle(Policy{MaxStarts: int(w.num("starts")), Depth: int(w.num("depth")), Backfill: c.bf, FairShare: c.fair,
			PartDepth: c.partDepth})
		for _, s := range plan.Starts {
			say("start %s", startLine(&s))
		}
		sayPreempt(say, &plan)
		sayElastic(say, &plan)
		c.st.View().Jobs(func(j *model.Job) bool {
			if j.State == model.Pending {
				name := fmt.Sprint(j.ID)
				if j.IsArray() {
					name += "_[" + j.Tasks.String() + "]"
				}
				text := strings.TrimSpace(j.Reason.String() + " " + j.Why)
				if at, nodes, ok := c.kept.Expected(j.ID); ok {
					text += fmt.Sprintf(", from +%d on %s", int64(at-epoch)/1000, strings.Join(nodes, ","))
				}
				say("wait  %s %s", name, text)
			}
			return true
		})
	case "wakes":
		if at := c.kept.Wake(); at != 0 {
			say("+%d", int64(at-epoch)/1000)
		}
	case "run":
		c.begin()
	case "agree":
		for _, text := range w.plain {
			if r := c.apply(&state.Resize{Job: c.id(text), Attempt: 1, Agree: true}).Each[0]; r != state.OK {
				say("%s: %s", text, r)
			}
		}
	case "suspend", "goon":
		s := &state.Suspend{Resume: fields[0] == "goon"}
		for _, id := range w.plain {
			s.Targets = append(s.Targets, model.JobRef{Job: c.id(id), Task: model.NoTask})
		}
		for i, r := range c.apply(s).Each {
			if r != state.OK {
				say("%s: %s", w.plain[i], r)
			}
		}
	case "turn":
		turn, next := Turn(c.st.View(), c.now)
		for _, id := range turn.Sleep {
			say("stops %d", id)
		}
		for _, id := range turn.Wake {
			say("goes on %d", id)
		}
		if next != 0 {
			say("next +%d", int64(next-epoch)/1000)
		}
		c.apply(&state.Suspend{Turn: turn})
	case "gang":
		c.cfg.Params.Preempt.Gang, c.cfg.Params.Preempt.SliceS = true, w.num("slice")
	case "end", "ending": // ending: its script has ended, and its epilog runs
		kind := state.Ended
		if fields[0] == "ending" {
			kind = state.Ending
		}
		for _, text := range w.plain {
			id, err := strconv.Atoi(text)
			if err != nil {
				c.t.Fatalf("%s: %v", c.at, err)
			}
			if !c.apply(&state.Reports{Reports: []state.Report{{Kind: kind, Job: model.JobID(id), Attempt: 1,
				At: c.now}}}).Changed {
				say("job %d does not run", id)
			}
		}
	case "clear":
		c.clear()
	case "cancel":
		stop := &state.Stop{Event: model.EvCancel}
		for _, text := range w.plain {
			id, err := strconv.Atoi(text)
			if err != nil {
				c.t.Fatalf("%s: %v", c.at, err)
			}
			stop.Targets = append(stop.Targets, model.JobRef{Job: model.JobID(id), Task: model.NoTask})
		}
		c.apply(stop)
	case "drain", "resume":
		admin := map[string]model.NodeAdmin{"drain": model.NodeDrain, "resume": model.NodeUp}[fields[0]]
		e := &state.NodeEdit{Nodes: w.plain, Admin: admin, Reason: w.named["reason"], By: "root"}
		if units := w.named["gpu"]; units != "" {
			e.Gres = "gpu"
			for text := range strings.SplitSeq(units, ",") {
				n, err := strconv.ParseInt(text, 10, 32)
				if err != nil {
					c.t.Fatalf("%s: %v", c.at, err)
				}
				e.Units = append(e.Units, int32(n))
			}
		}
		c.apply(e)
	case "lost":
		c.apply(&state.Lost{Nodes: w.plain})
	case "join":
		for _, n := range w.plain {
			c.apply(&state.Join{Node: n, BootID: "b"})
		}
	case "off", "rise", "noshow":
		c.power(say, fields[0], w.plain)
	case "wait":
		c.now = c.now.Add(c.span(w.plain[0]))
	case "estimate":
		id, err := strconv.Atoi(w.plain[0])
		if err != nil {
			c.t.Fatalf("%s: %v", c.at, err)
		}
		v := c.st.View()
		j := v.Job(model.JobID(id))
		at, a := Estimate(v, c.now, j.Spec, v.Partition(j.Spec.Partitions[0]))
		if a == nil {
			say("never")
		} else {
			say("+%d on %s", int64(at-epoch)/1000, allocLine(a))
		}
	case "reserve":
		r := c.reservation(w)
		if res := c.apply(&state.Reserve{Op: state.CreateResv, Resv: r}); res.Refusal != state.OK {
			say("refused: %s", res.Refusal)
		}
	case "unreserve":
		if res := c.apply(&state.Reserve{Op: state.DropResv,
			Resv: &model.Reservation{Name: w.plain[0]}}); res.Refusal != state.OK {
			say("refused: %s", res.Refusal)
		}
	case "tick":
		c.tick(say)
	case "limit":
		c.apply(&state.Edit{Targets: []model.JobRef{{Job: c.id(w.plain[0]), Task: model.NoTask}},
			Set: []state.Field{state.SetLimit}, LimitS: c.span(w.plain[1])})
	case "why":
		c.why(say, w)
	case "hold", "release":
		hold := map[string]model.HoldKind{"hold": model.HeldByUser, "release": model.NotHeld}[fields[0]]
		c.apply(&state.Edit{Targets: []model.JobRef{{Job: c.id(w.plain[0]), Task: model.NoTask}},
			Set: []state.Field{state.SetHold}, Hold: hold})
	default:
		if !c.accounts(fields[0], w) {
			c.t.Fatalf("%s: unknown command", c.at)
		}
	}
}

// power brings nodes to a step between on and off.
func (c *cluster) power(say func(string, ...any), word string, nodes []string) {
	ops := map[string][]state.PowerOp{"off": {state.BeginDown, state.FinishDown}, "rise": {state.BeginUp},
		"noshow": {state.GiveUpResume}}[word]
	for _, op := range ops {
		for i, r := range c.apply(&state.Powers{Nodes: nodes, Op: op}).Each {
			if r != state.OK {
				say("%s: %s", nodes[i], r)
			}
		}
	}
}

// backfill sets how the next cycles backfill.
func (c *cluster) backfill(w words) {
	c.partDepth = int(w.num("depth"))
	c.bf = Backfill{On: true, Reserve: int(w.num("reserve")), ShortestFirst: w.has("sjbf"), Keep: w.has("keep"),
		ResolutionS: w.num("resolution"),
		WindowS:     w.num("window"), MinAgeS: w.num("age"), MaxTest: int(w.num("tests")), MaxUser: int(w.num("userjobs")),
		MaxPart: int(w.num("partjobs")), MaxAssoc: int(w.num("assocjobs")), MaxUserPart: int(w.num("userpartjobs")),
		MaxArrayResv: int(w.num("arrayresv")),
		MinPriority:  uint64(w.num("minprio")), BusyNodes: w.has("busy"),
		MaxStart: int(w.num("ahead"))}
	for _, word := range w.plain {
		switch word {
		case "fifo":
			c.bf = Backfill{}
		case "easy":
			c.bf.Reserve = 1
		case "all":
			c.bf.Reserve = -1
		default:
			c.t.Fatalf("%s: unknown policy %s", c.at, word)
		}
	}
}
