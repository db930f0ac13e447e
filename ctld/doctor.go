package ctld

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// doctor.go is gcontrol doctor: it checks what an operator would check by hand on a cluster with problems, and says
// what to do about each finding. The leader knows half of it, and asks the nodes for the rest.

// doctorNodes is how many nodes are asked at a time.
const doctorNodes = 64

// skewNote is the clock difference of a node from which doctor reports it; maxSkew drains the node.
const skewNote = 2 * time.Second

type findings []proto.Finding

func (f *findings) add(about string, grade proto.Grade, fix, format string, args ...any) {
	*f = append(*f, proto.Finding{About: about, Grade: grade, Text: fmt.Sprintf(format, args...), Fix: fix})
}

func (c *Controller) doctor(ctx context.Context, who *caller,
	rq *proto.DoctorRequest) (*proto.DoctorReply, error) {
	v := c.machine.View()
	names := rq.Nodes
	if len(names) > proto.MaxTargets {
		return nil, refuse(proto.CodeBadRequest, "more than %d nodes in one request", proto.MaxTargets)
	}
	for _, name := range names {
		if v.Node(name) == nil {
			return nil, refuse(proto.CodeInvalidNode, "node %s is not defined", name)
		}
	}
	if len(names) == 0 {
		for _, d := range v.Config().Nodes {
			names = append(names, d.Name)
		}
	}
	reply := &proto.DoctorReply{Now: c.now(), Nodes: make([]proto.NodeFindings, len(names)+1)}
	reply.Nodes[0].List = c.examineSelf(ctx, v)
	if err := c.readers.gate.Enter(ctx, payerOf(who.UID)); err != nil {
		return nil, err
	}
	waiting := queuesOf(v)
	c.readers.gate.Leave()
	turns := make(chan struct{}, doctorNodes)
	var all sync.WaitGroup
	for i, name := range names {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			reply.Nodes[i+1] = proto.NodeFindings{Node: name, List: c.examine(ctx, v, waiting, v.Node(name))}
		})
	}
	all.Wait()
	return reply, nil
}

// examineSelf looks at the controllers and the accounting.
func (c *Controller) examineSelf(ctx context.Context, v *state.View) []proto.Finding {
	var f findings
	ping := c.pong(ctx)
	var away []string
	for _, x := range ping.Controllers {
		if !x.Up {
			away = append(away, x.Name)
		}
	}
	switch {
	case len(away) > 0 && 2*len(away) >= len(ping.Controllers):
		f.add("controllers", proto.GradeBad, "start them",
			"%s of %d can't be reached: there is no majority, so nothing can be changed",
			strings.Join(away, ", "), len(ping.Controllers))
	case len(away) > 0:
		f.add("controllers", proto.GradeBad, "start gctld there", "%s of %d can't be reached; %s leads",
			strings.Join(away, ", "), len(ping.Controllers), ping.Leader)
	default:
		f.add("controllers", proto.GradeOK, "", "%s leads, all %d answer", ping.Leader, max(1, len(ping.Controllers)))
	}
	if files, problems := c.loadConfig(); files == nil {
		f.add("config files", proto.GradeBad, "mend it: gcontrol reconfigure takes nothing of it as it is",
			"the files of %s have errors: %s", c.opts.Name, firstProblem(problems))
	} else if files.Hash != v.Config().Hash {
		f.add("config files", proto.GradeNote, "gcontrol reconfigure takes them up, with --dry-run it shows the difference",
			"the files of %s were changed, and the cluster has not read them since", c.opts.Name)
	}
	for _, text := range unknownQOS(v, v.Config()) {
		f.add("partitions", proto.GradeNote, "", "%s", text)
	}
	if text := c.clockTrouble(); text != "" {
		f.add("clock", proto.GradeBad, "", "%s", text)
	}
	for _, note := range ping.CertNotes {
		f.add("certificates", proto.GradeBad, "its daemon renews it when it reaches a controller, and one has the "+
			"authority's key; else: gbatch cert token", "%s", note)
	}
	for _, t := range c.ownTroubles(v) {
		if t.Event != "certificate_expires" && t.Event != "records_refused" { // these have their own findings
			f.add("disk", proto.GradeBad, "make room, or move what fills it; with no room left nothing can be changed",
				"%s: %s", c.opts.Name, t.Text)
		}
	}
	var others []string
	c.clocks.mu.Lock()
	for _, p := range c.members() {
		if ver := c.clocks.news[p.Name].Version; p.Name != c.opts.Name && ver != "" && ver != c.opts.Version {
			others = append(others, p.Name+" runs "+ver)
		}
		for _, t := range c.clocks.news[p.Name].Troubles {
			if p.Name != c.opts.Name && strings.HasPrefix(t.Event, "disk_") {
				f.add("disk", proto.GradeBad, "look after that disk", "%s: %s", p.Name, t.Text)
			}
		}
	}
	c.clocks.mu.Unlock()
	if len(others) > 0 {
		f.add("versions", proto.GradeNote, "end the upgrade: restart gctld where it is older (gbatch-ha(7))",
			"%s runs %s, %s", c.opts.Name, c.opts.Version, strings.Join(others, ", "))
	}
	for _, note := range ping.DbdNotes {
		f.add("accounting", proto.GradeNote, "", "%s", note)
	}
	c.examineDbds(&f, v, ping)
	return f
}

// examineDbds says whether the accounting daemons take records, and what to do.
func (c *Controller) examineDbds(f *findings, v *state.View, ping *proto.PingReply) {
	most, n := v.Config().Params.Ship.MaxWaiting, ping.Outbox
	if len(ping.Dbds) == 0 {
		f.add("accounting", proto.GradeOK, "", "no gdbd is configured")
	}
	for i := range ping.Dbds {
		d, n := &ping.Dbds[i], n
		if len(ping.Dbds) > 1 && d.Behind >= 0 { // as gcontrol ping has it: another one may have what this one lacks
			n = d.Behind
		}
		who, waiting, fix := "gdbd", count(int(n), "record waits", "records wait")+" for it", "start gdbd on its host"
		if d.Copy {
			who, waiting = "gdbd's copy at "+d.Addr, "it gets what it lacks when it is back"
		}
		switch {
		case d.Up && d.Copy:
			f.add("accounting", proto.GradeOK, "", "%s answers; it is %s behind", who, count(int(d.Behind), "record",
				"records"))
		case d.Up:
			f.add("accounting", proto.GradeOK, "", "gdbd answers; %s to be sent", count(int(n), "record waits", "records wait"))
		default:
			if dbdAnswers(d.Why) {
				fix = "see to that on the host of gdbd, which runs"
			}
			switch {
			case strings.Contains(d.Why, "begin-empty"):
				fix = "restore a backup or begin empty on purpose, as gbatch(8) has it"
			case !d.Copy && most > 0 && n >= most:
				waiting += ", the most that MaxDBDMsgs allows: each further one replaces the oldest"
			case !d.Copy:
				fix += "; nothing is lost meanwhile"
			}
			f.add("accounting", proto.GradeBad, fix, "%s takes no records (%s); %s", who,
				cmp.Or(d.Why, "it was not heard yet"), waiting)
		}
	}
	if ping.Discarded > 0 {
		f.add("accounting", proto.GradeNote, "gdbd has to be back before so many records wait",
			"%s of ended jobs and steps were discarded, because more than MaxDBDMsgs=%d waited for gdbd",
			count(int(ping.Discarded), "record", "records"), most)
	}
}

// dbdAnswers reports whether a gdbd that takes no records is there all the same, by what is said of it.
func dbdAnswers(why string) bool {
	return why != "" && !strings.Contains(why, "connecting to ")
}

// examine looks at one node.
func (c *Controller) examine(ctx context.Context, v *state.View, q *queues, n *model.Node) []proto.Finding {
	var f findings
	s := c.nodes.session(n.Def.Name)
	until := c.nodes.mayStillCome(v, n.Def.Name, time.Now())
	refused, turned := c.turned.last(n.Def.Name, time.Now())
	switch {
	case s != nil:
		f.add("daemon", proto.GradeOK, "", "gnoded %s is registered from %s", n.Version, s.addr)
	case turned:
		f.add("daemon", proto.GradeBad, refused.fix, "%s refuses gnoded: %s", c.opts.Name, refused.why)
	case n.Link == model.LinkUp && until > 0:
		f.add("daemon", proto.GradeNote, "", "%s has led for %s: gnoded has %s left to come to it", c.opts.Name,
			c.nodes.led(time.Now()), until)
	case n.Rises():
		f.add("daemon", proto.GradeOK, "", "the node is off, or on its way up")
	case n.LinkAt == 0:
		f.add("daemon", proto.GradeBad, "start gnoded there; its log says why it does not reach the controllers",
			"gnoded has never registered")
	case n.Link == model.LinkLost:
		f.add("daemon", proto.GradeBad,
			"start the host and gnoded, and see that they reach the controllers; gnoded then registers by itself",
			"gnoded stopped answering and was declared lost at %s",
			time.UnixMilli(int64(n.LinkAt)).Format("2006-01-02T15:04:05"))
	default:
		f.add("daemon", proto.GradeBad, "start gnoded there; its log says why it does not reach the controllers",
			"gnoded is not connected")
	}
	nodeState(&f, n)
	if s != nil {
		nodeGres(&f, v, n, s)
	}
	nodeUnits(&f, n)
	nodeAllocs(&f, v, n)
	if k := len(n.Strikes); k > 0 {
		f.add("launches", proto.GradeBad, "see the log of its gnoded", "jobs in a row whose launch failed here: %d", k)
	}
	c.nodeEnding(ctx, &f, v, n)
	queue(&f, q, n)
	if s == nil {
		return f
	}
	for _, note := range s.notes {
		f.add("notes", proto.GradeNote, "", "%s", note)
	}
	return append(f, c.askDoctor(ctx, v, n)...)
}

// askDoctor has the node look at itself.
func (c *Controller) askDoctor(ctx context.Context, v *state.View, n *model.Node) []proto.Finding {
	var f findings
	ctx, cancel := context.WithTimeout(ctx, statWait)
	defer cancel()
	m, err := c.askNode(ctx, n.Def.Name, proto.NodeAsk{Doctor: true, Held: heldUnits(v, n)})
	if err != nil {
		f.add("node", proto.GradeBad, "gnoded may hang: see its log", "the node's own checks did not run: %v", err)
		return f
	}
	if off := time.Duration(m.At-c.clocks.time.True()) * time.Millisecond; off.Abs() > skewNote {
		f.add("clock", proto.GradeBad, "set it by NTP", "it is %s off the controller's", off.Abs().Round(time.Second))
	} else {
		f.add("clock", proto.GradeOK, "", "as the controller's")
	}
	return append(f, m.Findings...)
}

// heldUnits gives the units of a node that running jobs hold.
func heldUnits(v *state.View, n *model.Node) []proto.HeldUnits {
	var out []proto.HeldUnits
	for _, id := range n.Jobs {
		j := v.Job(id)
		if j == nil || j.State != model.Running || j.Run == nil || j.Run.Launched == 0 || slices.Contains(n.Asleep, id) {
			continue
		}
		for i := range j.Run.Alloc.Nodes {
			if na := &j.Run.Alloc.Nodes[i]; na.Node == n.Def.Name && len(out) < proto.MaxUnits {
				out = append(out, proto.HeldUnits{Attempt: proto.Attempt{Job: id, Attempt: j.Attempt}, Gres: na.Gres})
			}
		}
	}
	return out
}

// nodeState says whether the node takes jobs.
func nodeState(f *findings, n *model.Node) {
	name := n.Def.Name
	resume := "once that is repaired: gcontrol update NodeName=" + name + " State=RESUME"
	switch why := cmp.Or(n.Reason, "no reason was given"); {
	case n.Problem != "":
		f.add("state", proto.GradeBad, "it resumes by itself once that is repaired", "%s: %s", n.BaseState(), n.Problem)
	case n.Admin != model.NodeUp:
		f.add("state", proto.GradeBad, resume, "%s: %s [%s]", n.BaseState(), why, cmp.Or(n.ReasonBy, "configuration"))
	case n.Silent():
		f.add("state", proto.GradeBad, "", "%s: jobs wait for it to register", n.BaseState())
	default:
		f.add("state", proto.GradeOK, "", "%s", n.BaseState())
	}
}

// nodeGres compares the configured resources with the ones that the node found.
func nodeGres(f *findings, v *state.View, n *model.Node, s *session) {
	if len(n.Def.Gres) == 0 {
		if len(s.units) > 0 {
			f.add("gres", proto.GradeNote, "add Gres= to its NodeName line and the names to GresTypes, or jobs that ask for "+
				"them are refused (Invalid generic resource (gres) specification)",
				"it has %d units of %s, and the configuration gives it none", len(s.units), s.units[0].Name)
		}
		return
	}
	var names []string
	for i := range n.Def.Gres {
		g := &n.Def.Gres[i]
		names = append(names, fmt.Sprintf("%s:%d", model.TypedName(g.Name, g.Type), g.Count))
	}
	text := strings.Join(names, ",")
	if why := lacks(n.Def, &s.hw); why != "" {
		f.add("gres", proto.GradeBad,
			"make Gres= and gres.conf agree with the hardware (gnoded -C and gnoded -G print it) and run gcontrol reconfigure",
			"%s is configured: %s", text, why)
		return
	}
	f.add("gres", proto.GradeOK, "", "%s is configured and found", text)
}

// nodeUnits names units that jobs don't get.
func nodeUnits(f *findings, n *model.Node) {
	for _, o := range n.Out {
		unit := fmt.Sprintf("%s:%d", o.Name, o.Index)
		switch o.Kind {
		case model.OutInUse:
			f.add("units", proto.GradeBad, "end those processes; or GpuForeignUsePolicy=ignore", "%s is not handed out: %s",
				unit, o.Reason)
		case model.OutFault, model.OutLost, model.OutDrained:
			f.add("units", proto.GradeBad,
				fmt.Sprintf("when the GPU works again: gcontrol update NodeName=%s Gres=%s State=RESUME", n.Def.Name, unit),
				"%s is drained: %s [%s]", unit, o.Reason, o.By)
		case model.OutCleared, model.OutSpent:
		}
	}
}

// nodeAllocs compares a node's record of use with the allocations of its jobs.
func nodeAllocs(f *findings, v *state.View, n *model.Node) {
	var wrong []string
	owner := map[proto.UnitHolder]string{}
	for _, h := range holders(v, n, jobText) {
		key := proto.UnitHolder{Name: h.Name, Index: h.Index}
		if who := owner[key]; who != "" && !sharedOn(n, h.Name) {
			wrong = append(wrong, fmt.Sprintf("jobs %s and %s both hold %s:%d", who, h.Job, h.Name, h.Index))
		}
		owner[key] = h.Job
	}
	cpus, mem := int64(0), int64(0)
	for _, id := range n.Jobs {
		j := v.Job(id)
		if j == nil || j.Run == nil || j.Run.Alloc == nil {
			wrong = append(wrong, fmt.Sprintf("job %d is listed on the node but holds nothing", id))
			continue
		}
		for i := range j.Run.Alloc.Nodes {
			if na := &j.Run.Alloc.Nodes[i]; na.Node == n.Def.Name {
				cpus, mem = cpus+int64(na.CPUs.Count()), mem+na.MemMiB
			}
		}
	}
	if mem != n.UsedMem {
		wrong = append(wrong, fmt.Sprintf("its jobs hold %d MiB, the node counts %d", mem, n.UsedMem))
	}
	if len(wrong) > 0 {
		f.add("allocations", proto.GradeBad, "report it with gcontrol dump state FILE", "%s", strings.Join(wrong, "; "))
		return
	}
	f.add("allocations", proto.GradeOK, "", "%s here: %s, %d MiB and %s of resources; none twice",
		count(len(n.Jobs), "job", "jobs"), count(int(cpus), "CPU", "CPUs"), mem, count(len(owner), "unit", "units"))
}

// sharedOn reports whether a resource's units are shares of GPUs, which are counted and not numbered.
func sharedOn(n *model.Node, name string) bool {
	return slices.ContainsFunc(n.Def.Gres, func(g model.GresDef) bool { return g.Name == name && len(g.Over) > 0 })
}

// queues is what waits, counted once for all nodes.
type queues struct {
	of  map[string][]string             // a node's partitions, in the order of the configuration
	why map[string]map[model.Reason]int // jobs by what holds them, by the partitions that they ask for, as one text
	own map[string]map[model.Reason]int // of nodes with the same partitions, likewise
	mu  sync.Mutex                      // of own
}

const partSep = ","

func queuesOf(v *state.View) *queues {
	q := &queues{of: map[string][]string{}, why: map[string]map[model.Reason]int{},
		own: map[string]map[model.Reason]int{}}
	for _, p := range v.Config().Partitions {
		for _, name := range p.Nodes {
			q.of[name] = append(q.of[name], p.Name)
		}
	}
	v.Jobs(func(j *model.Job) bool {
		if j.State == model.Pending {
			key := strings.Join(j.Spec.Partitions, partSep)
			if q.why[key] == nil {
				q.why[key] = map[model.Reason]int{}
			}
			q.why[key][j.Reason] += max(1, int(j.Tasks.Count()))
		}
		return true
	})
	return q
}

// in counts the jobs that wait in one of these partitions at least.
func (q *queues) in(parts []string) map[model.Reason]int {
	key := strings.Join(parts, partSep)
	q.mu.Lock()
	defer q.mu.Unlock()
	if known := q.own[key]; known != nil {
		return known
	}
	out := map[model.Reason]int{}
	for asked, why := range q.why {
		if slices.ContainsFunc(strings.Split(asked, partSep), func(p string) bool { return slices.Contains(parts, p) }) {
			for r, n := range why {
				out[r] += n
			}
		}
	}
	q.own[key] = out
	return out
}

// queue says which jobs wait in the node's partitions.
func queue(f *findings, q *queues, n *model.Node) {
	parts := q.of[n.Def.Name]
	if len(parts) == 0 {
		f.add("partitions", proto.GradeBad, "add it to a PartitionName line's Nodes= and run gcontrol reconfigure",
			"the node is in no partition: no job can use it")
		return
	}
	why := q.in(parts)
	if len(why) == 0 {
		f.add("partitions", proto.GradeOK, "", "%s; no job waits there", strings.Join(parts, ","))
		return
	}
	var list []model.Reason
	for r := range why {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b model.Reason) int { return cmp.Or(cmp.Compare(why[b], why[a]), cmp.Compare(a, b)) })
	var words []string
	for _, r := range list {
		words = append(words, fmt.Sprintf("%d %s", why[r], r))
	}
	f.add("partitions", proto.GradeNote, "gcontrol why JOBID says what a job waits for", "%s; waiting there: %s",
		strings.Join(parts, ","), strings.Join(words, ", "))
}
