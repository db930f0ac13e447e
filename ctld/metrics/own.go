package metrics

import (
	"slices"

	"gbatch/internal/jobtext"
	"gbatch/internal/model"
)

// own.go has what a controller tells of itself, of the cluster's GPUs as they are used, and of accounts' quotas.

// Own is what a controller knows of itself.
type Own struct {
	Role               string // Leader, Follower, Candidate
	Voters             int
	Term, Last, Commit uint64 // of raft: the term, the last entry, the last one that a majority has
	Applied, Snapshot  uint64 // the last entry in the facts, and in a snapshot
	Entries, Commands  uint64 // proposed here since the start
	Queued             int    // commands that wait for the log
	SlowestWriteS      float64
	RPCs               int64 // requests being answered now
	Nodes              int   // connections of nodes
	JobEvents          EventCounts
	Certificates       map[string]int64 // until when they count, seconds since 1970, by what they are
	FreeB, SizeB       uint64           // of the disk with the log; 0: not known
	Dbds               []Dbd            // on the leader, which speaks with them
}

// Dbd is an accounting daemon: the first, or its copy.
type Dbd struct {
	Copy, Up bool
	Behind   int64 // records that it lacks; -1: not known
}

// EventCounts are the events that JobEventProgram was called for.
type EventCounts struct{ Told, Failed, Lost, Waiting int64 }

// daemon gives it.
func (s *scrape) daemon(out *sink) {
	o := s.Own
	if o == nil {
		return
	}
	for _, role := range []string{"Leader", "Follower", "Candidate"} {
		v := 0.0
		if role == o.Role {
			v = 1
		}
		gauge(out, "gbatch_raft_role", "1: what this controller is in raft", []string{"role", role}, v)
	}
	for _, x := range []struct {
		name, help string
		v          float64
	}{
		{"gbatch_raft_voters", "controllers that vote", float64(o.Voters)},
		{"gbatch_raft_term", "raft's term: each election makes it grow", float64(o.Term)},
		{"gbatch_raft_last_index", "the last entry of this controller's log", float64(o.Last)},
		{"gbatch_raft_commit_index", "the last entry that a majority has", float64(o.Commit)},
		{"gbatch_raft_applied_index", "the last entry that is part of the facts", float64(o.Applied)},
		{"gbatch_store_snapshot_index", "the last entry in a snapshot", float64(o.Snapshot)},
		{"gbatch_store_queue", "commands that wait for the log", float64(o.Queued)},
		{"gbatch_store_slowest_write_seconds", "the slowest write of the log in the last minute", o.SlowestWriteS},
		{"gbatch_rpc_in_progress", "requests that are being answered", float64(o.RPCs)},
		{"gbatch_job_events_waiting", "events that JobEventProgram is to be told of", float64(o.JobEvents.Waiting)},
		{"gbatch_node_connections", "nodes that are connected to this controller", float64(o.Nodes)},
	} {
		gauge(out, x.name, x.help, nil, x.v)
	}
	if o.SizeB > 0 {
		gauge(out, "gbatch_store_free_bytes", "room on the disk with this controller's log", nil, float64(o.FreeB))
		gauge(out, "gbatch_store_size_bytes", "the size of the disk with this controller's log", nil, float64(o.SizeB))
	}
	for _, d := range o.Dbds {
		label, up := []string{"gdbd", "primary"}, 0.0
		if d.Copy {
			label[1] = "backup"
		}
		if d.Up {
			up = 1
		}
		gauge(out, "gbatch_accounting_up", "1: gdbd takes records, as the leader knows it", label, up)
		if d.Behind >= 0 {
			gauge(out, "gbatch_accounting_behind", "records that this gdbd lacks", label, float64(d.Behind))
		}
	}
	counter(out, "gbatch_store_entries_total", "entries of the log that were proposed here", nil, float64(o.Entries))
	counter(out, "gbatch_store_commands_total", "commands in them", nil, float64(o.Commands))
	for _, x := range []struct {
		result string
		n      int64
	}{{"told", o.JobEvents.Told}, {"failed", o.JobEvents.Failed}, {"lost", o.JobEvents.Lost}} {
		counter(out, "gbatch_job_events_total", "events by what became of JobEventProgram's call; lost: gaps, not events",
			[]string{"result", x.result}, float64(x.n))
	}
	var names []string
	for name := range o.Certificates {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		gauge(out, "gbatch_certificate_expiry_timestamp_seconds", "until when a certificate counts",
			[]string{"certificate", name}, float64(o.Certificates[name]))
	}
}

// quotas gives the GPUs that accounts may hold, and those that they and the accounts below them do hold.
func (s *scrape) quotas(out *sink, accounts *tallies) {
	limits, above := map[string]float64{}, map[string]string{}
	var names []string
	total := int64(0) // a limit in percent is of the nodes that take jobs
	s.View.Nodes(func(n *model.Node) bool {
		if all, _, _ := gpus(n); n.Usable() {
			total += int64(all)
		}
		return true
	})
	s.View.Associations(func(a *model.Association) bool {
		if a.User != "" || a.OfPool() {
			return true
		}
		for _, l := range a.GrpTRES {
			if l.TRES == "gres/gpu" && len(names) < s.Series {
				limits[a.Account] = float64(l.Of(total))
				names = append(names, a.Account)
			}
		}
		return true
	})
	if len(names) == 0 {
		return
	}
	s.View.Accounts(func(a *model.Account) bool {
		above[a.Name] = a.Parent
		return true
	})
	used := map[string]float64{}
	for account, t := range accounts.of {
		if account == others { // it sums up what is counted here
			continue
		}
		for depth := 0; account != "" && depth < maxDepth; depth++ {
			used[account] += t.gpus
			account = above[account]
		}
	}
	slices.Sort(names)
	for _, name := range names {
		gauge(out, "gbatch_account_gpus_limit", "GPUs that an account may hold (GrpTRES)", []string{"account", name},
			limits[name])
		gauge(out, "gbatch_account_gpus_used", "GPUs that an account with such a limit holds", []string{"account", name},
			used[name])
	}
}

// maxDepth is more than there are levels of accounts.
const maxDepth = 100

// idleLong is how long a GPU is held and does nothing until it counts as idle for long, milliseconds.
const idleLong = 3600 * 1000

// gpuUse is the use of the GPUs of one type.
type gpuUse struct{ held, idle, idleHour, measured, percent, out, usedMiB, allMiB float64 }

// idleLong counts the GPUs of a node that have done nothing for an hour, all in the hands of one job. Jobs with shares
// of a GPU come and go beside each other: it counts from the last one that came.
func (s *scrape) idleLong(n *model.Node) (count int) {
	if s.IdleMS == nil || len(n.Jobs) == 0 {
		return 0
	}
	idle := s.IdleMS(n.Def.Name)
	long := false
	for _, ms := range idle {
		long = long || ms >= idleLong
	}
	if !long {
		return 0 // mostly so
	}
	since := map[int32]model.Time{} // since when a GPU's jobs have it
	for _, id := range n.Jobs {
		j := s.View.Job(id)
		if j == nil || j.Run == nil || j.Run.Alloc == nil {
			continue
		}
		for i := range j.Run.Alloc.Nodes {
			a := &j.Run.Alloc.Nodes[i]
			for k := range a.Gres {
				switch g := &a.Gres[k]; {
				case a.Node != n.Def.Name:
				case g.Share != nil:
					since[g.Share.GPU] = max(since[g.Share.GPU], j.Run.SizedAt())
				case g.Name == model.GPUName:
					g.Index.Each(func(u int) bool {
						since[int32(u)] = max(since[int32(u)], j.Run.SizedAt())
						return true
					})
				}
			}
		}
	}
	for gpu, from := range since {
		if idle[gpu] >= idleLong && int64(s.Now-from) >= idleLong {
			count++
		}
	}
	return count
}

// used gives what the GPUs do that jobs hold, as far as nodes tell it, and those that are out of service.
func (s *scrape) used(out *sink) {
	kinds := map[string]*gpuUse{}
	s.View.Nodes(func(n *model.Node) bool {
		kind, has := "", false
		for i := range n.Def.Gres {
			if g := &n.Def.Gres[i]; g.Name == model.GPUName {
				kind, has = g.Type, true // a node has one type, nearly always
				break
			}
		}
		if !has {
			return true
		}
		u := kinds[kind]
		if u == nil {
			u = &gpuUse{}
			kinds[kind] = u
		}
		u.out += float64(len(jobtext.OutUnits(n, model.GPUName)))
		held := n.HeldGPUs()
		u.held += float64(held.Count())
		u.idleHour += float64(s.idleLong(n))
		if s.Readings == nil || held.Empty() {
			return true
		}
		list := s.Readings(n.Def.Name)
		for i := range list {
			r := &list[i]
			if r.Name != model.GPUName || r.Lost || r.UtilPct < 0 || !held.Has(int(r.Index)) {
				continue
			}
			u.measured++
			u.percent += float64(r.UtilPct)
			u.usedMiB, u.allMiB = u.usedMiB+float64(max(0, r.MemUsedMiB)), u.allMiB+float64(max(0, r.MemTotalMiB))
			if r.UtilPct < model.IdleGPUPct {
				u.idle++
			}
		}
		return true
	})
	var names []string
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		u, labels := kinds[name], []string{"type", name}
		gauge(out, "gbatch_gpus_out_of_service", "GPUs that were taken out of service, by hand or for a fault", labels, u.out)
		if s.Readings == nil {
			continue
		}
		gauge(out, "gbatch_gpus_measured", "allocated GPUs whose use is known", labels, u.measured)
		gauge(out, "gbatch_gpus_allocated_idle", "allocated GPUs whose use is below 10 percent", labels, u.idle)
		gauge(out, "gbatch_gpus_allocated_idle_hour", "GPUs that one job has held for an hour in which they did nothing",
			labels, u.idleHour)
		if u.measured > 0 {
			gauge(out, "gbatch_gpu_utilization_percent", "mean use of allocated GPUs", labels, u.percent/u.measured)
			gauge(out, "gbatch_gpu_memory_used_bytes", "memory of allocated GPUs that is in use", labels, u.usedMiB*mib)
			gauge(out, "gbatch_gpu_memory_total_bytes", "memory of allocated GPUs", labels, u.allMiB*mib)
		}
	}
}
