package ctld

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"gbatch/ctld/define"
	"gbatch/ctld/pools"
	"gbatch/internal/ask"
	"gbatch/internal/blob"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/sched"
	"gbatch/internal/state"
)

// jobs sends a list of jobs from a View, while submissions and planning go on.
func (c *Controller) jobs(_ context.Context, who *caller, rq *proto.JobsRequest, send stream) error {
	v := c.machine.View()
	sees := c.sees(v, who)
	if err := checkRefs(v, rq.Filter.Jobs); err != nil {
		return err
	}
	chunk := proto.JobsChunk{Now: c.now()}
	rules := askRules(v)
	flush := func() (err error) {
		if len(rules) > 0 {
			err, rules = send(&proto.JobsChunk{Now: chunk.Now, Rules: rules}), nil
		}
		if err == nil {
			err = send(&chunk)
		}
		chunk.Jobs = chunk.Jobs[:0]
		return err
	}
	order := c.prio.order(v, chunk.Now)
	var err error
	gives := partGives{v: v}
	bytes := 0             // of the chunk, about
	var copies []model.Job // jobs that are shown with additional data, until the chunk is sent
	give := func(j *model.Job) bool {
		if !sees.job(j.Spec) || !picked(&rq.Filter, j) || rq.Default && len(rq.Filter.States) == 0 && j.State.Finished() {
			return true
		}
		expects := c.expects
		if rq.Positions {
			expects = c.placed
		}
		if prio, e := c.priorityNow(v, order, j), c.idleOf(j, gives.add(j, expects(j))); prio != j.Priority || e != nil {
			copies = append(copies, *j)
			j = &copies[len(copies)-1]
			j.Priority = prio
			if e != nil {
				j.Expect = e
			}
		}
		chunk.Jobs, bytes = append(chunk.Jobs, j), bytes+jobBytes(j)
		if len(chunk.Jobs) == proto.ChunkJobs || bytes > proto.ChunkBytes/2 {
			err, copies, bytes = flush(), copies[:0], 0
		}
		return err == nil
	}
	if len(rq.Filter.Jobs) > 0 {
		known := 0
		for _, ref := range rq.Filter.Jobs {
			for _, j := range sees.only(resolve(v, ref)) {
				known++
				give(j)
			}
		}
		if known == 0 && len(rq.Filter.Jobs) == 1 {
			return refuse(proto.CodeInvalidJob, "")
		}
	} else if uids := rq.Filter.Users; len(uids) == 1 {
		v.JobsOf(uids[0], phases(rq), give)
	} else {
		v.Jobs(give)
	}
	if err == nil && len(chunk.Jobs) > 0 {
		err = flush()
	}
	return err
}

// jobBytes is about the length of a job in a list, bytes. It is looked at for each job of each list.
func jobBytes(j *model.Job) int {
	sp := j.Spec
	n := 300 + len(sp.Name) + len(sp.Comment) + len(sp.Command) + len(sp.Submit) + len(sp.WorkDir) + len(sp.StdIn) +
		len(sp.StdOut) + len(sp.StdErr) + len(sp.Features) + len(sp.DepText) + len(sp.ArrayText) + len(sp.Reservation) +
		len(sp.Account) + 3*len(sp.Groups) + 8*(len(sp.Deps)+len(sp.Tasklist)+len(j.Tasks)) + 16*len(sp.Limits)
	for _, list := range [...][]string{sp.Args, sp.ReqNodes, sp.ExcNodes, sp.Partitions} {
		for _, s := range list {
			n += len(s) + 3
		}
	}
	if j.Run != nil && j.Run.Alloc != nil {
		n += 100 * len(j.Run.Alloc.Nodes)
	}
	if j.End != nil && j.End.Exit.Use != nil {
		n += 200 * len(j.End.Exit.Use.Nodes)
	}
	return n
}

// phases gives those that a request's jobs can be in.
func phases(rq *proto.JobsRequest) (p state.Phase) {
	for _, s := range rq.Filter.States {
		p |= state.PhaseOf(s)
	}
	switch {
	case p != 0:
		return p
	case rq.Default:
		return state.Waits | state.Holds
	}
	return state.Waits | state.Holds | state.IsOver
}

// askRules gives the rules of each partition, and its rules for jobs of each QOS that lifts its limits of nodes.
func askRules(v *state.View) []*model.AskRules {
	var out []*model.AskRules
	params := &v.Config().Params
	add := func(p *model.Partition, qos string) {
		r := ask.RulesOf(p, params)
		r.QOS = qos
		out = append(out, &r)
	}
	for _, p := range v.Config().Partitions {
		add(p, "")
		v.AllQOS(func(q *model.QOS) bool {
			if lifted := sched.Lifted(v, q.Name, p); lifted.MinNodes != p.MinNodes || lifted.MaxNodes != p.MaxNodes {
				add(lifted, q.Name)
			}
			return true
		})
	}
	return out
}

// checkRefs refuses references that no command could have parsed. After it, MaxTargets times the largest possible array
// bounds later walks.
func checkRefs(v *state.View, refs []model.JobRef) error {
	if len(refs) > proto.MaxTargets {
		return refuse(proto.CodeBadRequest, "more than %d job ids in one request", proto.MaxTargets)
	}
	for _, r := range refs {
		if !r.Tasks.Valid() || r.Tasks.Max() >= max(v.Config().Params.MaxArraySize, 1) {
			return refuse(proto.CodeInvalidJob, "%d_[%s]: tasks go from 0 to %d (MaxArraySize)", r.Job, r.Tasks,
				v.Config().Params.MaxArraySize-1)
		}
	}
	return nil
}

// resolve gives the records that a reference names: a job, an array with all its tasks, some tasks, or components of a
// heterogeneous job. A task that has not started gives the array's own record.
func resolve(v *state.View, ref model.JobRef) []*model.Job {
	var out []*model.Job
	switch {
	case ref.Task != model.NoTask || len(ref.Tasks) > 0:
		tasks := ref.Tasks
		if len(tasks) == 0 {
			tasks = model.TaskSet{{Lo: ref.Task, Hi: ref.Task, Step: 1}}
		}
		seen := map[model.JobID]bool{} // tasks that have not started share a record
		tasks.Each(func(t int32) bool {
			if j := v.TaskRecord(ref.Job, t); j != nil && !seen[j.ID] {
				seen[j.ID] = true
				out = append(out, j)
			}
			return true
		})
	case ref.Het > 0:
		if j := v.Component(ref.Job, ref.Het-1); j != nil {
			out = append(out, j)
		}
	default:
		if all := v.Components(ref.Job); all != nil {
			return all
		}
		j := v.Job(ref.Job)
		if j != nil {
			out = append(out, j)
		}
		if v.Array(ref.Job) != nil {
			v.Tasks(ref.Job, func(t *model.Job) bool {
				if t.ID != ref.Job {
					out = append(out, t)
				}
				return true
			})
		}
	}
	return out
}

// picked reports whether a job fits every part of a filter but Jobs.
func picked(f *proto.JobFilter, j *model.Job) bool {
	if len(f.Users) > 0 && !hasUID(f.Users, j.Spec.UID) || hasUID(f.NotUsers, j.Spec.UID) {
		return false
	}
	if len(f.States) > 0 && !j.In(f.States) {
		return false
	}
	if len(f.Names) > 0 && !hasName(f.Names, j.Spec.Name) ||
		len(f.Accounts) > 0 && !model.HasAccount(f.Accounts, j.Spec.Account) ||
		len(f.QOS) > 0 && !hasName(f.QOS, j.Spec.QOS) || len(f.WCKeys) > 0 && !model.HasWCKey(f.WCKeys, j.Spec.WCKey) {
		return false
	}
	if len(f.Licenses) > 0 &&
		(j.Spec.More == nil ||
			!slices.ContainsFunc(j.Spec.More.Licenses, func(l model.LicenseCount) bool { return hasName(f.Licenses, l.Name) })) {
		return false
	}
	if len(f.Reservations) > 0 && !slices.ContainsFunc(strings.Split(j.ReservationText(), ","),
		func(name string) bool { return hasName(f.Reservations, name) }) {
		return false
	}
	if len(f.Partitions) > 0 &&
		!slices.ContainsFunc(j.Partitions(), func(p string) bool { return hasName(f.Partitions, p) }) {
		return false
	}
	if len(f.Nodes) > 0 {
		if j.Run == nil {
			return false
		}
		for i := range j.Run.Alloc.Nodes {
			if hasName(f.Nodes, j.Run.Alloc.Nodes[i].Node) {
				return true
			}
		}
		return false
	}
	return true
}

func hasUID(list []uint32, uid uint32) bool {
	for _, u := range list {
		if u == uid {
			return true
		}
	}
	return false
}

func hasName(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

func (c *Controller) nodesList(_ context.Context, who *caller, rq *proto.NodesRequest, send stream) error {
	v := c.machine.View()
	sees := c.sees(v, who)
	if err := sees.denied("nodes"); err != nil {
		return err
	}
	parts := map[string][]string{}
	in := func(list []*model.Partition) {
		for _, p := range list {
			for _, n := range p.Nodes {
				parts[n] = append(parts[n], p.Name)
			}
		}
	}
	in(v.Config().Partitions)
	names, future := rq.Names, map[string]*model.NodeDef{}
	for _, d := range v.Config().Nodes {
		if len(rq.Names) == 0 {
			names = append(names, d.Name)
		}
	}
	if rq.Future && len(v.Config().Future) > 0 {
		for _, d := range v.Config().Future {
			future[d.Name] = d
			if len(rq.Names) == 0 {
				names = append(names, d.Name)
			}
		}
		clear(parts)
		in(define.WithFuture(v.Config()))
	}
	chunk := proto.NodesChunk{Now: c.now()}
	resvs := wholeNodes(v, chunk.Now)
	for _, name := range names {
		n := v.Node(name)
		if n == nil && future[name] != nil {
			n = &model.Node{Def: future[name]}
		}
		if n == nil {
			return refuse(proto.CodeInvalidNode, "node %s is not defined", name)
		}
		info := &proto.NodeInfo{Node: sees.node(loadedNow(n, v, chunk.Now)), LoadMilli: -1, FreeMemMiB: -1,
			Partitions: parts[name]}
		if r := resvs[name]; r != nil {
			info.Maint = r.Flags&model.ResvMaint != 0
			if sees.reservation(r) {
				info.Resv = r.Name
			}
		}
		c.nodes.feel(name, info)
		if rq.Units {
			c.nodes.units(name, info)
			info.Holders = holders(v, n, sees.jobText)
		}
		chunk.Nodes = append(chunk.Nodes, info)
		if len(chunk.Nodes) == proto.ChunkJobs || rq.Units && len(chunk.Nodes) == chunkUnits {
			if err := send(&chunk); err != nil {
				return err
			}
			chunk.Nodes = nil
		}
	}
	if len(chunk.Nodes) > 0 {
		return send(&chunk)
	}
	return nil
}

func (c *Controller) partitions(_ context.Context, who *caller, _ *proto.Empty) (*proto.PartitionsReply, error) {
	v := c.machine.View()
	if err := c.sees(v, who).denied("partitions"); err != nil {
		return nil, err
	}
	out := &proto.PartitionsReply{Now: c.now(), Partitions: v.Config().Partitions}
	for _, p := range out.Partitions {
		cpus, sum := int64(0), proto.GresTotals{}
		for _, name := range p.Nodes {
			n := v.Node(name)
			if n == nil {
				continue
			}
			cpus += int64(n.Def.CPUs)
			sum.MemMiB += n.Def.MemMiB
			for _, g := range n.Def.Gres {
				sum.Gres = addCount(sum.Gres, g)
			}
		}
		out.TotalCPUs = append(out.TotalCPUs, cpus)
		out.Gres = append(out.Gres, sum)
	}
	if byGroups(v.Config()) && !c.operator(who) && who.UID != model.NoID { // whose groups nobody knows, on a node
		for _, p := range out.Partitions {
			out.Barred = append(out.Barred, c.outside(who, p))
		}
	}
	return out, nil
}

// byGroups reports whether some partitions are for some groups only.
func byGroups(cfg *model.Config) bool {
	return slices.ContainsFunc(cfg.Partitions, func(p *model.Partition) bool { return len(p.AllowGroups) > 0 })
}

// outside reports whether AllowGroups of a partition leaves somebody out. Root and SlurmUser are in all, as in Slurm.
func (c *Controller) outside(who *caller, p *model.Partition) bool {
	return len(p.AllowGroups) > 0 && who.UID != 0 && who.UID != c.opts.UID && !c.inGroups(who, p.AllowGroups)
}

// pools sums up the partitions. Quotas of accounts are for those who may see the account.
func (c *Controller) pools(_ context.Context, who *caller, _ *proto.Empty) (*proto.PoolsReply, error) {
	v := c.machine.View()
	sees := c.sees(v, who)
	if err := cmp.Or(sees.denied("partitions"), sees.denied("nodes")); err != nil {
		return nil, err
	}
	now := c.now()
	return &proto.PoolsReply{Now: now, Pools: pools.Of(v, now, sees.account)}, nil
}

func addCount(list []model.GresCount, g model.GresDef) []model.GresCount {
	for i := range list {
		if list[i].Name == g.Name && list[i].Type == g.Type {
			list[i].Count += int64(g.Count)
			return list
		}
	}
	return append(list, model.GresCount{Name: g.Name, Type: g.Type, Count: int64(g.Count)})
}

func (c *Controller) script(_ context.Context, who *caller, rq *proto.ScriptRequest) (*proto.ScriptReply, error) {
	v := c.machine.View()
	j := v.Job(rq.Job)
	if j == nil || !c.sees(v, who).job(j.Spec) {
		return nil, refuse(proto.CodeInvalidJob, "%d", rq.Job)
	}
	if !c.may(proto.KindScript, who, j) {
		return nil, refuse(proto.CodeAccess, "job %d is not yours", rq.Job)
	}
	b, most, what := v.Blob(j.Spec.Script), maxScriptBytes, "script"
	if rq.Env {
		b, most, what = v.Blob(j.Spec.Env), proto.MaxEnvBytes, "environment"
	}
	text, err := blob.Open(&b, most)
	if err != nil {
		return nil, refuse(proto.CodeInternal, "the %s of job %d can't be read: %v", what, rq.Job, err)
	}
	return &proto.ScriptReply{Script: text}, nil
}

// config answers with the configuration, as far as the caller may see it.
func (c *Controller) config(_ context.Context, who *caller, _ *proto.Empty) (*proto.ConfigReply, error) {
	v := c.machine.View()
	cfg := *c.sees(v, who).config(v.Config())
	cfg.Show = append(slices.Clip(cfg.Show), model.KV{Key: "NEXT_JOB_ID", Value: fmt.Sprint(v.NextJob())})
	reply := &proto.ConfigReply{Config: &cfg, Paths: c.opts.Paths, Now: c.now(), BootAt: c.bootAt}
	reserved := licensesReserved(v, reply.Now)
	for _, l := range v.Config().Licenses {
		reply.LicensesInUse = append(reply.LicensesInUse, model.LicenseCount{Name: l.Name, Count: v.LicensesInUse(l.Name)})
		reply.LicensesReserved = append(reply.LicensesReserved, model.LicenseCount{Name: l.Name, Count: reserved[l.Name]})
	}
	return reply, nil
}

// licensesReserved gives how many of each license the reservations have that are active at a time.
func licensesReserved(v *state.View, now model.Time) map[string]int64 {
	out := map[string]int64{}
	v.Reservations(func(r *model.Reservation) bool {
		for _, l := range r.Licenses {
			if r.Active(now) {
				out[l.Name] += l.Count
			}
		}
		return true
	})
	return out
}
