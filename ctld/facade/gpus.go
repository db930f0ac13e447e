package facade

import (
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

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

// units gives the cluster's GPUs, without parts of GPUs.
func (q *request) units() (list []unit, err error) {
	nodes := 0
	err = q.stream(proto.KindNodes, &proto.NodesRequest{Units: true}, func(part []byte) error {
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
		ID          string  `json:"id"`
		Node        string  `json:"node"`
		Index       int32   `json:"index"`
		Type        string  `json:"type"`
		Status      string  `json:"status" enum:"idle,busy,offline"`
		TaskID      *string `json:"task_id"`
		Utilization *int32  `json:"utilization"` // percent
		UsedMiB     *int64  `json:"memory_used_mb"`
		AllMiB      *int64  `json:"memory_total_mb"`
		TempC       *int32  `json:"temperature"`
		Reason      string  `json:"reason,omitempty"`
	}
	gpusReply struct {
		GPUs  []gpu `json:"gpus"`
		Total int   `json:"total"`
	}
	quotaClass struct {
		Quota     float64 `json:"quota"` // 0 to 1
		Limit     int64   `json:"limit"`
		Used      int64   `json:"used"`
		Available int64   `json:"available"`
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
		Pending    int64  `json:"pending_jobs"`
		Usage      int64  `json:"current_usage"`
		Max        *int64 `json:"max_capacity"`
		Guaranteed int64  `json:"guaranteed_capacity"`
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
	list, err := q.units()
	if err != nil {
		return nil, err
	}
	out := []gpu{}
	for i := range list {
		u := &list[i]
		g := gpu{ID: "GPU-" + strconv.Itoa(int(u.Index)), Node: u.Node, Index: u.Index, Type: u.Type,
			Status: u.status(), Reason: u.Why,
			Utilization: known(u.Util), UsedMiB: known(u.UsedMiB), AllMiB: known(u.AllMiB), TempC: known(u.TempC)}
		if u.Job != "" && u.Job != proto.HiddenJob {
			id := "task-" + u.Job
			g.TaskID = &id
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
	return math.Round(float64(a)/float64(b)*1e4) / 1e4
}

// unfinished gives each task that waits or runs, as the caller may see them.
func (q *request) unfinished(see func(*Task)) error {
	rules, now := &ask.Rulebook{}, q.f.Cluster.Facts().Now
	return q.each(proto.JobFilter{States: slices.DeleteFunc(model.JobStates(), model.JobState.Finished)}, rules,
		func(j *model.Job) { see(taskOf(j, rules.Of(j), now)) })
}

// quota says what tasks of high and of low priority may hold, and what they do hold: all of them, whoever asks.
func (q *request) quota(string) (any, error) {
	facts := q.f.Cluster.Facts()
	total, held := int64(0), map[string]int64{}
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
					for k := range a.Gres {
						if a.Gres[k].Name == model.GPUName {
							held[classOf(j.Spec)] += int64(a.Gres[k].Index.Count())
						}
					}
				}
			}
		}
		return true
	})
	of := func(class string) quotaClass {
		most := total
		for _, name := range classes[class] {
			if x := facts.QOS(name); x != nil {
				if n := limit(x.GrpTRES, total); n >= 0 {
					most = min(n, total)
				}
				break
			}
		}
		return quotaClass{Quota: share(most, total), Limit: most, Used: held[class], Available: max(0, most-held[class])}
	}
	return quotaReply{Total: total, Online: of(high), Batch: of(low)}, nil
}

// pools are the partitions.
func (q *request) pools(string) (any, error) {
	units, err := q.units()
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

// queue describes the queue, by GPUs and by QOS.
func (q *request) queue(string) (any, error) {
	units, err := q.units()
	if err != nil {
		return nil, err
	}
	total, facts := int64(len(units)), q.f.Cluster.Facts()
	groups, stats := map[string]*group{}, map[string]*stat{}
	var mine, queued, runs, listed int
	err = q.unfinished(func(t *Task) {
		e := experimentOf(t)
		name := t.job.Spec.QOS
		if stats[name] == nil {
			s := &stat{}
			if x := facts.QOS(name); x != nil {
				s.Max, s.Guaranteed = known(limit(x.GrpTRES, total)), max(0, limit(x.GuaranteedTRES, total))
			}
			stats[name] = s
		}
		key := "auto"
		switch {
		case e.Status == "running":
			runs++
			stats[name].Usage += int64(len(t.Allocated))
			var ids []string
			for _, g := range t.Allocated {
				ids = append(ids, g[strings.LastIndexByte(g, '-')+1:])
			}
			key = strings.Join(ids, ",")
		case e.Status == "queued":
			queued++
			stats[name].Pending++
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
