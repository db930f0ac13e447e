package ctld

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gbatch/internal/ask"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
	"gbatch/internal/walltime"
)

// jobneeds.go changes what a pending job needs of nodes, and the nodes of a running one.

// needKeys lists the needs of a pending job that gcontrol update job can change, for its refusals.
const needKeys = "Features, Prefer, Gres (TresPerNode), TresPerJob, TresPerTask, Licenses, NumTasks, NumCPUs, " +
	"CPUsPerTask, TasksPerNode, MinCPUsNode, MinMemoryNode, MinMemoryCPU, MinTmpDiskNode, ReqSockets, ReqCores, " +
	"ReqThreads, Switches, OverSubscribe, Contiguous"

// editNeeds changes a job's needs of nodes; known is false if the key is not one of needKeys. place checks the result
// against the partitions.
func editNeeds(sp *model.Spec, key, value string) (known bool, err error) {
	count := func(to *int32) {
		var n int32
		if n, err = ask.ParseCount(value, ask.MaxCount); err != nil {
			err = fmt.Errorf("write a whole number from 1 to %d", ask.MaxCount)
			return
		}
		*to = n
	}
	more := sp.Extra()
	switch strings.ToLower(key) {
	case "features":
		sp.Features = model.FeatureText(value)
		_, err = model.ParseFeatures(value)
	case "prefer":
		more.Prefer = model.FeatureText(value)
	case "gres", "trespernode":
		more.GPUsPerSocket = nil
		sp.Gres, err = withGres(sp.Gres, &more, model.PerNode, value)
	case "tresperjob":
		sp.Gres, err = withGres(sp.Gres, &more, model.PerJob, value)
	case "trespertask":
		sp.Gres, err = withGres(sp.Gres, &more, model.PerTask, value)
	case "licenses":
		more.Licenses, more.AnyLicense, err = ask.ParseLicenses(value)
	case "numtasks":
		count(&sp.Tasks)
	case "numcpus", "reqprocs":
		var cpus, most int32
		low, high, ranged := strings.Cut(value, "-")
		if value = low; ranged { // so many are enough
			if most, err = ask.ParseCount(high, ask.MaxCount); err != nil {
				return true, refuse(proto.CodeBadRequest, "%s=%s-%s: write NUMBER or LEAST-MOST", key, low, high)
			}
		}
		if count(&cpus); err == nil && ranged && most < cpus {
			err = fmt.Errorf("%d is more than %d", cpus, most)
		}
		if err == nil {
			editCPUs(sp, cpus)
		}
	case "cpuspertask", "cpus/task":
		count(&sp.CPUsPerTask)
	case "taskspernode":
		count(&sp.TasksPerNode)
	case "mincpusnode":
		count(&sp.MinCPUs)
	case "minmemorynode":
		sp.MemPerNode, err = walltime.ParseMemMiB(value)
		sp.MemPerCPU, more.MemPerGPU = 0, 0
		if sp.MemPerNode == 0 {
			sp.MemPerNode = model.WholeMem
		}
	case "minmemorycpu":
		sp.MemPerCPU, err = walltime.ParseMemMiB(value)
		sp.MemPerNode, more.MemPerGPU = 0, 0
	case "mintmpdisknode":
		sp.TmpMiB, err = walltime.ParseMemMiB(value)
	case "reqsockets":
		count(&more.Sockets)
	case "reqcores":
		count(&more.CoresPerSocket)
	case "reqthreads":
		count(&more.ThreadsPerCore)
	case "switches", "reqswitch":
		n, wait, timed := strings.Cut(value, "@")
		value = n
		count(&more.Switches)
		more.SwitchWaitS = model.NotSet
		if timed && err == nil {
			more.SwitchWaitS, err = ask.ParseLimit(wait)
		}
	case "oversubscribe", "shared":
		switch strings.ToLower(value) {
		case "1", "yes":
			sp.Exclusive, more.Share = false, true
		case "0", "no":
			sp.Exclusive, more.Share = true, false
		default:
			err = fmt.Errorf("write yes, or no for whole nodes")
		}
	case "contiguous":
		switch strings.ToLower(value) {
		case "1", "yes":
			more.Contiguous = true
		case "0", "no":
			more.Contiguous = false
		default:
			err = fmt.Errorf("write 1 or 0")
		}
	default:
		return false, nil
	}
	if err != nil {
		return true, refuse(proto.CodeBadRequest, "%s=%s: %v", key, value, err)
	}
	sp.More = &more
	return true, nil
}

// editCPUs makes a job ask for so many CPUs: its tasks stay, and its nodes give more CPUs than they need. Only where
// its tasks need more CPUs than that it has fewer tasks.
func editCPUs(sp *model.Spec, cpus int32) {
	per, nodes := max(1, sp.CPUsPerTask), max(1, sp.MinNodes)
	sp.MinCPUs = 0
	switch {
	case cpus < max(1, sp.Tasks)*per:
		sp.Tasks = (cpus + per - 1) / per
	case cpus > max(1, sp.Tasks)*per:
		sp.MinCPUs = (cpus + nodes - 1) / nodes
	}
}

// withGres replaces the generic resources that are counted per node, job or task by those of a list in the form of
// --gres; an empty list removes them.
func withGres(have []model.GresReq, more *model.Needs, per model.GresPer, list string) ([]model.GresReq, error) {
	if len(more.GresToo) > 0 {
		return nil, fmt.Errorf("the job asks for them in several ways, which give its nodes or tasks too: cancel it and " +
			"submit another")
	}
	add, err := ask.ParseGres("", list, per)
	if err != nil {
		return nil, err
	}
	var out []model.GresReq
	for _, g := range have {
		if g.Per != per {
			out = append(out, g)
		}
	}
	for _, g := range add {
		if slices.ContainsFunc(out, func(o model.GresReq) bool { return o.Name == g.Name }) {
			return nil, fmt.Errorf("the job asks for %s in another way already (gcontrol show job has it as TresPerNode, "+
				"TresPerJob or TresPerTask): change that", g.Name)
		}
	}
	return append(out, add...), nil
}

// giftWait is how long a job that is to have ALL nodes waits for those that other jobs are giving it.
const giftWait = 20 * time.Second

// nodesWord says which nodes of a running job a word of gcontrol update is about: their number, or the list.
func nodesWord(key string) (number, list bool) {
	word := strings.ToLower(key)
	for _, f := range editable {
		if slices.Contains(f.words, word) {
			return f.shown == "NumNodes", f.shown == "ReqNodeList"
		}
	}
	return false, false
}

// resizing turns NumNodes= and NodeList= of a running job into the change of its nodes; nil if it is none.
func (c *Controller) resizing(v *state.View, t model.JobRef, set []model.KV) (*state.Resize, error) {
	found := resolve(v, t)
	if len(found) != 1 || !found[0].State.HasResources() {
		return nil, nil
	}
	j := found[0]
	at := slices.IndexFunc(set, func(kv model.KV) bool { number, list := nodesWord(kv.Key); return number || list })
	switch {
	case at < 0:
		return nil, nil
	case len(set) > 1:
		return nil, refuse(proto.CodeBadRequest, "%s= of a running job is changed alone: give the other words in a "+
			"command of their own", set[at].Key)
	case j.Het != nil:
		return nil, refuse(proto.CodeWholeHet, "components of heterogeneous jobs keep their nodes")
	case j.State != model.Running:
		return nil, refuse(proto.CodeNotPending, "job %d is %s: it can give nodes up while it is RUNNING", j.ID, j.State)
	case j.Run.Sizes >= model.MaxSizes:
		return nil, refuse(proto.CodePolicy, "job %d has changed its nodes %d times, which is as often as a job may", j.ID,
			model.MaxSizes)
	}
	out := &state.Resize{Job: j.ID, Attempt: j.Attempt}
	var err error
	if _, list := nodesWord(set[at].Key); list {
		out.Keep, err = keptNodes(j, set[at], c.blocksOf(v, j))
	} else {
		err = keptNumber(j, set[at], out, c.blocksOf(v, j))
	}
	return out, err
}

// blocks are the nodes of a job whose number of nodes is its own, by block, as far as no segment of it is divided. A
// job without segments has none, and neither has an elastic one, whose nodes come in segments (Spec.Stride).
type blocks struct {
	size int // nodes of a segment
	list []*jobBlock
}

type jobBlock struct {
	name  string
	nodes []string
}

// blocksOf gives them. They are none where the network has changed, and they divide segments of the job already.
func (c *Controller) blocksOf(v *state.View, j *model.Job) blocks {
	out := blocks{size: int(j.Spec.Extra().Segment)}
	if out.size < 2 || j.Spec.Elastic() != nil {
		return blocks{size: 1}
	}
	at := map[string]*jobBlock{}
	for _, name := range j.Run.Alloc.NodeNames() {
		path, is := c.switchPath(v.Config(), v.Partition(j.Run.Partition), name)
		b := at[path]
		if b == nil {
			b = &jobBlock{name: path}
			at[path], out.list = b, append(out.list, b)
		}
		if b.nodes = append(b.nodes, name); !is || path == "" {
			return blocks{size: 1}
		}
	}
	for _, b := range out.list {
		if len(b.nodes)%out.size != 0 {
			return blocks{size: 1}
		}
	}
	return out
}

// first gives so many of a job's nodes that no segment is divided, its first one among them: those of the last blocks
// go.
func (b *blocks) first(names []string, n int) []string {
	if b.size < 2 {
		return names[:n]
	}
	gone := map[string]bool{}
	for _, block := range slices.Backward(b.list) {
		k := min(len(block.nodes), len(names)-n-len(gone))
		if block == b.list[0] {
			k = min(k, len(block.nodes)-b.size) // the script runs in it
		}
		for _, name := range block.nodes[len(block.nodes)-max(0, k):] {
			gone[name] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return gone[name] })
}

// keptNumber reads NumNodes=: the first ones of the job's nodes stay.
func keptNumber(j *model.Job, kv model.KV, out *state.Resize, in blocks) error {
	names := j.Run.Alloc.NodeNames()
	if strings.EqualFold(kv.Value, "AGREED") {
		if out.Agree = true; j.Run.Recall == nil {
			return refuse(proto.CodeNodeCount, "job %d is not asked for any of its %d nodes (%s); NumNodes=N gives some up",
				j.ID, len(names), hostlist.Compress(names))
		}
		return nil
	}
	if strings.EqualFold(kv.Value, "ALL") {
		out.Keep = names
		return nil
	}
	n, err := strconv.ParseInt(kv.Value, 10, 32)
	switch {
	case err != nil || n < 0:
		return refuse(proto.CodeNodeCount, "%s=%s: write the number of nodes that the running job keeps, ALL, "+
			"or AGREED", kv.Key, kv.Value)
	case n > int64(len(names)):
		return refuse(proto.CodeNodeCount, "job %d has %s (%s); a job with --dependency=expand:%d brings it more",
			j.ID, hostlist.CountText(len(names)), hostlist.Compress(names), j.ID)
	case n%int64(max(in.size, j.Spec.Stride())) != 0:
		return refuse(proto.CodeNodeCount, "%s=%s: job %d has segments of %d nodes, and none is divided: write a multiple "+
			"of %[4]d", kv.Key, kv.Value, j.ID, max(in.size, j.Spec.Stride()))
	case n > 0:
		out.Keep = in.first(names, int(n))
		return nil
	}
	for _, d := range j.Spec.Deps {
		if d.Kind == model.DepExpand {
			out.Give = d.Job
			return nil
		}
	}
	return refuse(proto.CodeNodeCount, "job %d keeps at least its first node, %s; gcancel %d ends it", j.ID, names[0],
		j.ID)
}

// keptNodes reads NodeList=: the nodes that stay.
func keptNodes(j *model.Job, kv model.KV, in blocks) ([]string, error) {
	names, err := hostlist.Expand(kv.Value)
	if err != nil {
		return nil, refuse(proto.CodeInvalidNode, "%s=%s: %v", kv.Key, kv.Value, err)
	}
	for _, name := range names {
		if j.Run.Alloc.Place(name) < 0 {
			return nil, refuse(proto.CodeInvalidNode, "node %s is none of job %d's, which are %s", name, j.ID,
				hostlist.Compress(j.Run.Alloc.NodeNames()))
		}
	}
	if first := j.Run.Alloc.Nodes[0].Node; !slices.Contains(names, first) {
		return nil, refuse(proto.CodeNodeConfig, "node %s runs the script of job %d and stays: add it to %s=", first, j.ID,
			kv.Key)
	}
	for _, b := range in.list {
		stay := slices.DeleteFunc(slices.Clone(b.nodes), func(name string) bool { return !slices.Contains(names, name) })
		if len(stay)%in.size != 0 {
			return nil, refuse(proto.CodeNodeConfig, "%s=%s: job %d has segments of %d nodes, and none is divided: of block "+
				"%s it names %s, which is no multiple of %[4]d", kv.Key, kv.Value, j.ID, in.size, b.name,
				hostlist.Compress(stay))
		}
	}
	all, n := j.Run.Alloc.NodeNames(), j.Spec.Stride()
	for segment := range slices.Chunk(all, n) {
		stay := 0
		for _, name := range segment {
			if slices.Contains(names, name) {
				stay++
			}
		}
		if stay > 0 && stay < len(segment) {
			return nil, refuse(proto.CodeNodeConfig, "%s=%s: nodes %s are one segment of job %d and stay together, or none "+
				"of them does", kv.Key, kv.Value, hostlist.Compress(segment), j.ID)
		}
	}
	return names, nil
}

// awaitGifts waits, for NumNodes=ALL, until the nodes that other jobs are giving to these jobs can be used.
func (c *Controller) awaitGifts(ctx context.Context, set []model.KV, targets []model.JobRef) error {
	if !slices.ContainsFunc(set, func(kv model.KV) bool {
		number, _ := nodesWord(kv.Key)
		return number && strings.EqualFold(kv.Value, "ALL")
	}) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, giftWait)
	defer cancel()
	for {
		changed := c.machine.Changed()
		v := c.machine.View()
		to, by := model.JobID(0), model.JobID(0)
		for _, t := range targets {
			if j := v.Job(t.Job); j != nil && j.State == model.Running && !j.Run.Unready.Empty() {
				to = j.ID
			}
			v.Moving(func(j *model.Job) bool {
				if j.Run.GiveTo == t.Job {
					to, by = t.Job, j.ID
				}
				return to == 0
			})
		}
		if to == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			if by == 0 {
				return refuse(proto.CodeBusy, "the new nodes of job %d still run their prologs: try again", to)
			}
			return refuse(proto.CodeBusy, "job %d has not ended on its nodes yet; they are job %d's when it has: try again",
				by, to)
		}
	}
}

// expands checks a job whose nodes are for a running one, and completes it as that one is.
func expands(found []*model.Job, who *caller, sp *model.Spec) error {
	j := found[0]
	switch {
	case len(found) > 1 || j.Het != nil || len(sp.Tasklist) > 0 || len(sp.Deps) > 1:
		return refuse(proto.CodeDependency, "--dependency=%s: expand stands alone, names one plain job, and is for a plain "+
			"job", sp.DepText)
	case j.State != model.Running:
		return refuse(proto.CodeDependency, "--dependency=%s: job %d is %s; only a running job gets more nodes", sp.DepText,
			j.ID, j.State)
	case j.Spec.UID != who.UID:
		return refuse(proto.CodeDependency, "--dependency=%s: job %d is another user's", sp.DepText, j.ID)
	case j.Spec.Stride() > 1:
		return refuse(proto.CodeDependency, "--dependency=%s: job %d grows by whole segments (--segment=%d), by itself "+
			"where they are free (--elastic)", sp.DepText, j.ID, j.Spec.Stride())
	case len(sp.Partitions) > 0 && !slices.Equal(sp.Partitions, []string{j.Run.Partition}),
		sp.QOS != "" && sp.QOS != j.Spec.QOS:
		return refuse(proto.CodeDependency, "--dependency=%s: job %d runs in partition %s with QOS %s, and this job must "+
			"ask for the same", sp.DepText, j.ID, j.Run.Partition, j.Spec.QOS)
	}
	sp.Partitions, sp.QOS = []string{j.Run.Partition}, j.Spec.QOS
	for _, name := range j.Run.Alloc.NodeNames() {
		if !slices.Contains(sp.ExcNodes, name) {
			sp.ExcNodes = append(sp.ExcNodes, name)
		}
	}
	return nil
}

// given gives the value of another key of the same command.
func (ed *editing) given(key string) (string, bool) {
	for _, kv := range ed.all {
		if strings.EqualFold(kv.Key, key) {
			return kv.Value, true
		}
	}
	return "", false
}

// file is StdIn, StdOut, StdErr and WorkDir of a script that waits. Names of files are below the working directory.
func (ed *editing) file(kv model.KV) error {
	if ed.j.State != model.Pending {
		return refuse(proto.CodeNotPending, "%s of a job that runs is open", kv.Key)
	}
	dir := ed.sp.WorkDir
	if d, ok := ed.given("workdir"); ok {
		dir = d
	}
	if !strings.HasPrefix(dir, "/") {
		return ed.bad(kv, "write the working directory as an absolute path")
	}
	path := kv.Value
	if path == "" {
		return ed.bad(kv, "name a file")
	}
	if !strings.HasPrefix(path, "/") {
		path = strings.TrimSuffix(dir, "/") + "/" + path
	}
	switch strings.ToLower(kv.Key) {
	case "stdin":
		ed.sp.StdIn = path
	case "stdout":
		ed.sp.StdOut = path
	case "stderr":
		ed.sp.StdErr = path
	default:
		ed.sp.WorkDir = dir
	}
	ed.specChanged = true
	return nil
}
