package facade

import (
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"gbatch/ctld/pools"
	"gbatch/internal/ask"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// unit is a GPU, and the partitions and the node it is in.
type unit struct {
	jobtext.GPULook
	parts []string
}

var errEnough = errors.New("enough")

// units gives the cluster's GPUs, or those of some nodes, without parts of GPUs.
func (q *request) units(of []string) (list []unit, err error) {
	nodes := 0
	err = q.stream(proto.KindNodes, &proto.NodesRequest{Names: of, Units: true}, func(part []byte) error {
		var chunk proto.NodesChunk
		if err := proto.Decode(part, &chunk); err != nil {
			return err
		}
		for _, i := range chunk.Nodes {
			if nodes++; nodes > maxNodes {
				return errEnough
			}
			rows := jobtext.GPURows(i)
			for k := range rows {
				list = append(list, unit{rows[k].Look(), i.Partitions})
			}
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return list, err
}

// status of a GPU: idle, busy, offline.
func (u *unit) status() string {
	switch u.State {
	case "alloc":
		return "busy"
	case "idle", "reserved", "maint":
		return "idle"
	}
	return "offline"
}

// Answers about GPUs.
type (
	gpu struct {
		ID          string     `json:"id"`
		Node        string     `json:"node"`
		Index       int32      `json:"index"`
		Type        string     `json:"type"`
		Product     string     `json:"product"` // as the driver names it
		Status      string     `json:"status" enum:"idle,busy,offline"`
		TaskID      *string    `json:"task_id"`          // of the one task that has it, or shares of it
		TaskIDs     []string   `json:"task_ids"`         // of all tasks
		Shares      *gpuShares `json:"shares,omitempty"` // absent: nobody has shares of it
		Utilization *int32     `json:"utilization"`      // percent
		UsedMiB     *int64     `json:"memory_used_mb"`
		FreeMiB     *int64     `json:"memory_free_mb"`
		AllMiB      *int64     `json:"memory_total_mb"`
		TempC       *int32     `json:"temperature"`
		Reason      string     `json:"reason,omitempty"`
	}
	gpuShares struct {
		Name  string `json:"name"` // shard, mps, gpuram
		Used  int32  `json:"used"`
		Total int32  `json:"total"`
	}
	gpusReply struct {
		GPUs  []gpu `json:"gpus"`
		Total int   `json:"total"`
	}
	quotaClass struct {
		Quota     float64 `json:"quota"` // 0 to 1
		Limit     int64   `json:"limit"`
		Used      float64 `json:"used"` // with parts of GPUs
		Available float64 `json:"available"`
	}
	quotaReply struct {
		Total  int64      `json:"total_gpus"`
		Online quotaClass `json:"online"`
		Batch  quotaClass `json:"batch"`
	}
	pool struct {
		ID          string           `json:"id"`
		Name        string           `json:"name"`
		Type        string           `json:"type" enum:"gpu"`
		Types       []string         `json:"gpu_types"`
		Total       int64            `json:"total_capacity"`
		Allocated   int64            `json:"allocated_capacity"`
		Reserved    int64            `json:"reserved_capacity"` // also what is out of service
		Available   int64            `json:"available_capacity"`
		Utilization float64          `json:"utilization"` // 0 to 1
		Count       int              `json:"resource_count"`
		Tenants     map[string]int64 `json:"tenant_quotas"`
	}
	poolsReply struct {
		Pools []pool `json:"pools"`
		Total int    `json:"total"`
	}
	group struct {
		Count       int          `json:"count"`
		Experiments []experiment `json:"experiments"`
	}
	stat struct {
		Pending    int64   `json:"pending_jobs"`
		Usage      float64 `json:"current_usage"` // with parts of GPUs
		Max        *int64  `json:"max_capacity"`
		Guaranteed int64   `json:"guaranteed_capacity"`

		micros int64 // the usage
	}
	queueReply struct {
		Running     bool              `json:"scheduler_running"`
		Mine        int               `json:"user_queued_count"`
		Groups      map[string]*group `json:"device_groups"`
		Total       int64             `json:"total_capacity"`
		Allocated   int64             `json:"allocated_capacity"`
		Available   int64             `json:"available_capacity"`
		Utilization float64           `json:"utilization"` // 0 to 1
		Queued      int               `json:"queued_jobs"`
		Runs        int               `json:"running_jobs"`
		Stats       map[string]*stat  `json:"queue_stats"`
	}
	enqueuedJob struct {
		ID     uint64 `json:"id"`
		Status string `json:"status" enum:"queued"`
	}
	enqueued struct {
		Success    bool        `json:"success"`
		Message    string      `json:"message"`
		Experiment enqueuedJob `json:"experiment"`
	}
)

// gpus lists GPUs.
func (q *request) gpus(string) (any, error) {
	list, err := q.units(q.words("node"))
	if err != nil {
		return nil, err
	}
	out := []gpu{}
	for i := range list {
		u := &list[i]
		g := gpu{ID: "GPU-" + strconv.Itoa(int(u.Index)), Node: u.Node, Index: u.Index, Type: u.Type,
			Product: u.Product, TaskIDs: []string{}, Status: u.status(), Reason: u.Why, Utilization: known(u.Util),
			UsedMiB: known(u.UsedMiB), FreeMiB: known(u.FreeMiB), AllMiB: known(u.AllMiB), TempC: known(u.TempC)}
		for _, job := range u.Jobs {
			if job != proto.HiddenJob {
				g.TaskIDs = append(g.TaskIDs, "task-"+job)
			}
		}
		if len(u.Jobs) == 1 && len(g.TaskIDs) == 1 {
			g.TaskID = &g.TaskIDs[0]
		}
		if u.Share != "" {
			g.Shares = &gpuShares{u.Share, u.SharesUsed, u.SharesAll}
		}
		out = append(out, g)
	}
	return gpusReply{out, len(out)}, nil
}

// known gives a number, or nil for one that is not known.
func known[T int32 | int64](v T) *T {
	if v < 0 {
		return nil
	}
	return &v
}

// limit gives how many GPUs a list of limits allows; -1: any number.
func limit(list []model.TRESLimit, total int64) int64 {
	for _, l := range list {
		if l.TRES == "gres/gpu" {
			return l.Of(total)
		}
	}
	return -1
}

// share is a part of a whole, 0 to 1 with four digits.
func share(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return rounded(float64(a) / float64(b))
}

// rounded gives a number four digits behind the point.
func rounded(v float64) float64 { return math.Round(v*1e4) / 1e4 }

// unfinished gives each task that waits or runs, as the caller may see them.
func (q *request) unfinished(see func(*Task)) error {
	rules, facts := &ask.Rulebook{}, q.f.Cluster.Facts()
	return q.each(proto.JobFilter{States: slices.DeleteFunc(model.JobStates(), model.JobState.Finished)}, rules,
		func(j *model.Job) { see(taskOf(j, rules.Of(j), &facts)) })
}

// quota says what tasks of high and of low priority may hold, and what they do hold: all of them, whoever asks.
func (q *request) quota(string) (any, error) {
	facts := q.f.Cluster.Facts()
	total, held := int64(0), map[pools.Class]int64{}
	facts.Nodes(func(n *model.Node) bool {
		for i := range n.Def.Gres {
			if n.Def.Gres[i].Name == model.GPUName {
				total += int64(n.Def.Gres[i].Count)
			}
		}
		for _, id := range n.Jobs {
			j := facts.Job(id)
			if j == nil || j.Run == nil || j.Run.Alloc == nil {
				continue
			}
			for i := range j.Run.Alloc.Nodes {
				if a := &j.Run.Alloc.Nodes[i]; a.Node == n.Def.Name {
					held[pools.ClassOf(facts.View, j)] += a.GPUMicros()
				}
			}
		}
		return true
	})
	of := func(class pools.Class) quotaClass {
		most, limited := int64(0), false
		for _, name := range class.QOS() { // of a QOS without a limit there is nothing to say
			if x := facts.QOS(name); x != nil {
				if n := limit(x.GrpTRES, total); n >= 0 {
					most, limited = most+n, true
				}
			}
		}
		if most = min(most, total); !limited {
			most = total
		}
		used := rounded(float64(held[class]) / model.GPU)
		return quotaClass{Quota: share(most, total), Limit: most, Used: used, Available: max(0, rounded(float64(most)-used))}
	}
	return quotaReply{Total: total, Online: of(pools.Online), Batch: of(pools.Batch)}, nil
}

// pools are the partitions.
func (q *request) pools(string) (any, error) {
	units, err := q.units(nil)
	if err != nil {
		return nil, err
	}
	var parts proto.PartitionsReply
	if err := q.ask(proto.KindPartitions, &proto.Empty{}, &parts); err != nil {
		return nil, err
	}
	var quotas proto.PoolsReply
	if err := q.ask(proto.KindPools, &proto.Empty{}, &quotas); err != nil {
		return nil, err
	}
	accounts := map[string]int64{}
	if q.f.Cluster.Sees(q.who) == "" { // accounts' limits are not for users from whom PrivateData hides something
		q.f.Cluster.Facts().Associations(func(a *model.Association) bool {
			if n := limit(a.GrpTRES, int64(len(units))); a.User == "" && !a.OfPool() && n >= 0 {
				accounts[a.Account] = n
			}
			return true
		})
	}
	out := []pool{}
	for _, p := range parts.Partitions {
		var total, busy, reserved int64
		var types []string
		nodes := map[string]bool{}
		for i := range units {
			u := &units[i]
			if !slices.Contains(u.parts, p.Name) {
				continue
			}
			total++
			nodes[u.Node] = true
			switch {
			case u.Job != "": // also while it is out of service
				busy++
			case u.State != "idle":
				reserved++ // also what is out of service: nobody gets it
			}
			if !slices.Contains(types, u.Type) {
				types = append(types, u.Type)
			}
		}
		slices.Sort(types)
		tenants := maps.Clone(accounts)
		for i := range quotas.Pools {
			if quotas.Pools[i].Name != p.Name {
				continue
			}
			for k := range quotas.Pools[i].Quotas {
				if x := &quotas.Pools[i].Quotas[k]; x.TRES == "gres/gpu" && x.Limit >= 0 {
					tenants[x.Account] = x.Limit
				}
			}
		}
		out = append(out, pool{ID: p.Name, Name: p.Name, Type: "gpu", Types: append([]string{}, types...), Total: total,
			Allocated: busy, Reserved: reserved, Available: total - busy - reserved, Utilization: share(busy, total),
			Count: len(nodes), Tenants: tenants})
	}
	return poolsReply{out, len(out)}, nil
}

// experiment is a job in the queue.
type experiment struct {
	ID       uint64  `json:"id"`
	Name     string  `json:"name"`
	User     string  `json:"user"`
	Status   string  `json:"status" enum:"pending,queued,running"` // pending: held
	QueuedAt *string `json:"queued_at"`
}

func experimentOf(t *Task) experiment {
	e := experiment{ID: uint64(t.job.ID), Name: t.Name, User: t.User, Status: t.Status, QueuedAt: t.CreatedAt}
	if t.Status == "pending" && t.job.Priority > 0 {
		e.Status = "queued"
	}
	return e
}

// heldText names the GPUs of which a job has something: 0,1, or n1/0,n2/0 where several nodes have GPUs.
func heldText(j *model.Job, nodes bool) string {
	var names []string
	for i := range j.Run.Alloc.Nodes {
		n := &j.Run.Alloc.Nodes[i]
		gpusOf(n).Each(func(u int) bool {
			name := strconv.Itoa(u)
			if nodes {
				name = n.Node + "/" + name
			}
			names = append(names, name)
			return true
		})
	}
	return strings.Join(names, ",")
}

// queue describes the queue, by GPUs and by QOS.
func (q *request) queue(string) (any, error) {
	units, err := q.units(nil)
	if err != nil {
		return nil, err
	}
	several := slices.ContainsFunc(units, func(u unit) bool { return u.Node != units[0].Node })
	total, facts := int64(len(units)), q.f.Cluster.Facts()
	groups, stats := map[string]*group{}, map[string]*stat{}
	var mine, queued, runs, listed int
	err = q.unfinished(func(t *Task) {
		e := experimentOf(t)
		var of []*stat
		for _, name := range pools.QOSOf(facts.View, t.job) {
			if stats[name] == nil {
				s := &stat{}
				if x := facts.QOS(name); x != nil {
					s.Max, s.Guaranteed = known(limit(x.GrpTRES, total)), max(0, limit(x.GuaranteedTRES, total))
				}
				stats[name] = s
			}
			of = append(of, stats[name])
		}
		key := "auto"
		switch {
		case e.Status == "running":
			runs++
			if t.job.Run != nil && t.job.Run.Alloc != nil {
				key = heldText(t.job, several)
				for _, s := range of {
					s.micros += t.job.Run.Alloc.GPUMicros()
				}
			}
		case e.Status == "queued":
			queued++
			for _, s := range of {
				s.Pending++
			}
			if t.job.Spec.UID == q.who.UID {
				mine++
			}
		default:
			return
		}
		if t.GPUCount == 0 && len(t.Allocated) == 0 {
			key = "cpu"
		}
		if groups[key] == nil {
			groups[key] = &group{Experiments: []experiment{}}
		}
		groups[key].Count++
		if listed++; listed <= maxTasks { // all are counted
			groups[key].Experiments = append(groups[key].Experiments, e)
		}
	})
	if err != nil {
		return nil, err
	}
	for _, s := range stats {
		s.Usage = rounded(float64(s.micros) / model.GPU)
	}
	var busy, free int64
	for i := range units {
		switch u := &units[i]; {
		case u.Job != "":
			busy++
		case u.State == "idle":
			free++
		}
	}
	return queueReply{Running: !facts.Leaderless, Mine: mine, Groups: groups, Total: total, Allocated: busy,
		Available: free, Utilization: share(busy, total), Queued: queued, Runs: runs, Stats: stats}, nil
}

// enqueue releases a held job; one that is in the queue stays there.
func (q *request) enqueue(id string) (any, error) {
	t, err := q.one(id)
	if err != nil {
		return nil, err
	}
	if t.Status == "pending" && t.job.Priority == 0 {
		r, err := ref(id)
		if err != nil {
			return nil, err
		}
		var done proto.TargetsReply
		if err := q.ask(proto.KindUpdateJob, &proto.UpdateJobRequest{Action: proto.ActRelease,
			Targets: []model.JobRef{r}}, &done); err != nil {
			return nil, err
		}
		if err := failed(&done); err != nil {
			return nil, err
		}
	} else if t.Status != "pending" {
		return nil, &wrong{http.StatusConflict, "task " + id + " is " + t.Status + ": only one that is pending can be queued"}
	}
	return enqueued{true, "实验已加入队列", enqueuedJob{uint64(t.job.ID), "queued"}}, nil
}
