package noded

import (
	"cmp"
	"context"
	"slices"

	"gbatch/internal/conf"
	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/noded/exporter"
	"gbatch/noded/gpu"
	"gbatch/noded/gpuwatch"
	"gbatch/noded/hardware"
)

// gpuSeen is the value of a GPU's energy counter at the last reading.
type gpuSeen struct {
	energyMJ int64 // -1: unknown
}

// gpusHeld gives the GPUs, and MIG instances by either name, of which a job has all or a share: by name and index,
// each once.
func gpusHeld(here *model.NodeAlloc) []jobenv.Unit {
	var held []jobenv.Unit
	for i := range here.Gres {
		g := &here.Gres[i]
		switch {
		case g.Share != nil:
			held = append(held, jobenv.Unit{Resource: model.GPUName, Index: int(g.Share.GPU)})
		case model.IsRemote(g.Name, g.Type):
		case hardware.Detectable(g.Name):
			g.Index.Each(func(i int) bool { held = append(held, jobenv.Unit{Resource: g.Name, Index: i}); return true })
		}
	}
	slices.SortFunc(held,
		func(a, b jobenv.Unit) int { return cmp.Or(cmp.Compare(a.Resource, b.Resource), a.Index-b.Index) })
	return slices.Compact(held)
}

// givenKey names a GPU or MIG instance for the counts of jobs that were given it.
type givenKey struct {
	index int32
	uuid  string
}

// give counts the GPUs of a job that comes here.
func (s *sampler) give(u *model.NodeUsage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range u.GPUs {
		s.given[givenKey{u.GPUs[i].Index, u.GPUs[i].UUID}]++
	}
}

// free reports whether no job here has a GPU or MIG instance, or a share of it.
func (s *sampler) free(unit jobenv.Unit) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	uuid := s.groups.units.UUID[unit]
	for _, j := range s.jobs {
		for i := range j.use.GPUs {
			if g := &j.use.GPUs[i]; int(g.Index) == unit.Index && (g.UUID == uuid || g.UUID == "" || uuid == "") {
				return false
			}
		}
	}
	return true
}

// reading gives the latest reading of a GPU, nil where there is none. Jobs' numbers are the configuration's, which
// may differ from the driver's: its UUID tells, where it is known.
func (s *sampler) reading(g *model.GPUUsage) *gpu.Reading {
	for i := range s.gpus {
		r := &s.gpus[i]
		if g.UUID != "" && r.UUID == g.UUID || g.UUID == "" && r.Index == int(g.Index) {
			return r
		}
	}
	return nil
}

// onReadings adds a round of GPU readings to the usage of the jobs that hold the GPUs.
func (s *sampler) onReadings(list []gpu.Reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gpus = list
	for _, j := range s.jobs {
		if len(j.use.GPUs) == 0 {
			continue
		}
		var pids map[int]bool
		for i := range j.use.GPUs {
			r := s.reading(&j.use.GPUs[i])
			if r == nil || r.Lost {
				continue
			}
			if pids == nil && len(r.Processes) > 0 {
				pids = s.pidsOf(j)
			}
			j.credit(i, r, pids)
		}
	}
}

// credit adds one reading of the i-th GPU.
func (j *sampled) credit(i int, r *gpu.Reading, pids map[int]bool) {
	g := &j.use.GPUs[i]
	g.UUID, g.Samples = r.UUID, g.Samples+1
	j.dirty = true
	if r.UtilPct >= 0 {
		g.UtilSum += int64(r.UtilPct)
		g.UtilCount++
		g.UtilMax = max(g.UtilMax, int32(r.UtilPct))
	}
	g.MemMaxMiB, g.MemMiB = max(g.MemMaxMiB, r.MemUsedMiB), max(g.MemMiB, r.MemTotalMiB)
	own := int64(0)
	for _, p := range r.Processes {
		if pids[p.PID] {
			own += max(p.MemMiB, 0)
		}
	}
	g.OwnMaxMiB = max(g.OwnMaxMiB, own)
	// it begins again at 0 when the driver is loaded anew
	if last := j.gpus[i].energyMJ; last >= 0 && r.EnergyMilliJ > last {
		g.EnergyMJ += r.EnergyMilliJ - last
	}
	j.gpus[i].energyMJ = r.EnergyMilliJ
}

// pidsOf lists a job's processes.
func (s *sampler) pidsOf(j *sampled) map[int]bool {
	list := s.procsOf(j)
	pids := make(map[int]bool, len(list))
	for _, pid := range list {
		pids[pid] = true
	}
	return pids
}

// snapshot is what the node's metrics are made of. Nothing is measured for it.
func (n *Noded) snapshot() *exporter.Snapshot {
	x := &exporter.Snapshot{Host: n.opts.Name}
	round := n.gpus.Last()
	told := gpuwatch.UnitReadings(n.inv, round, &n.troubles)
	s := n.sampler
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n.inv.Units {
		u := &n.inv.Units[i]
		if u.Dev == nil {
			continue
		}
		g := exporter.GPU{Index: u.Dev.Index, Minor: u.Dev.Minor, UUID: u.Dev.UUID, PCI: u.Dev.PCIBusID, Model: u.Dev.Name,
			UtilPct: -1, MemUtilPct: -1, TempC: -1, XID: -1, UsedMiB: -1, TotalMiB: u.Dev.MemMiB, PowerMW: -1, EnergyMilJ: -1,
			MemTempC: -1, SMClockMHz: -1, MemClockMHz: -1,
			Tasks: s.given[givenKey{int32(u.Index), u.UUID}]}
		if u.Inst != nil {
			g.Profile, g.Instance, g.TotalMiB = u.Inst.Profile, u.Inst.GI, u.Inst.MemMiB
		}
		for k := range told {
			if t := &told[k]; t.Name == u.Name && t.Index == u.Index && !t.Lost {
				g.UtilPct, g.MemUtilPct, g.TempC = int64(t.UtilPct), int64(t.MemUtilPct), int64(t.TempC)
				g.UsedMiB, g.TotalMiB, g.PowerMW, g.XID = t.MemUsedMiB, max(t.MemTotalMiB, g.TotalMiB), t.PowerMilliW, int64(t.XID)
			}
		}
		for k := range round.Readings {
			if r := &round.Readings[k]; u.Inst == nil && r.UUID == u.Dev.UUID && !r.Lost {
				g.EnergyMilJ, g.MemTempC = r.EnergyMilliJ, int64(r.MemTempC)
				g.SMClockMHz, g.MemClockMHz = int64(r.SMClockMHz), int64(r.MemClockMHz)
			}
		}
		for key, j := range s.jobs {
			id := uint32(key.job.Job)
			if slices.ContainsFunc(j.use.GPUs, func(h model.GPUUsage) bool {
				return h.UUID != "" && h.UUID == u.UUID || (h.UUID == "" || u.UUID == "") && h.Index == u.Index
			}) && !slices.Contains(g.Jobs, id) {
				g.Jobs = append(g.Jobs, id)
			}
		}
		slices.Sort(g.Jobs)
		x.GPUs = append(x.GPUs, g)
	}
	for key, j := range s.jobs {
		if key.step != stepBatch || j.at.IsZero() {
			continue
		}
		u := &j.use
		x.Jobs = append(x.Jobs, exporter.Job{ID: uint32(key.job.Job), CPUs: int64(u.CPUs), UserMS: u.UserMS, SysMS: u.SysMS,
			RSSBytes: j.nowKB << 10, UsedBytes: j.memKB << 10, LimitBytes: u.MemMiB << 20, OOMKill: int64(u.OOMKills)})
	}
	slices.SortFunc(x.Jobs, func(a, b exporter.Job) int { return cmp.Compare(a.ID, b.ID) })
	return x
}

// export serves the node's metrics and keeps the files of jobs' GPUs, if the configuration wants that.
func (n *Noded) export(ctx context.Context) {
	defer func() { <-ctx.Done() }() // gnoded ends when one of its parts does
	c := n.opts.Config
	if c == nil || n.inv == nil {
		return
	}
	e := &exporter.Exporter{Dir: c.HpcJobMappingDir, Names: c.NodeMetricsNames, Look: n.snapshot, Log: n.log}
	if e.Dir != "" {
		e.Dir = conf.ExpandPath(e.Dir, n.opts.Name, n.opts.Host)
	}
	e.Listen = conf.NodeMetricsAddr(c)
	e.Run(ctx)
}
