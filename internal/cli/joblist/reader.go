package joblist

import "gbatch/internal/model"

// Reader reads chunks of a list. It is for one goroutine; the zero value is ready.
type Reader struct {
	job  model.Job
	spec model.Spec
	run  model.Run
	end  model.End

	alloc model.Alloc
}

// Each calls f for every job of an encoded proto.JobsChunk, in order, with the moment at which the controller answered.
// The job is good until f returns: Clone gives one to keep. Spec.Script, Env, Groups, Args and Limits are not read.
func (r *Reader) Each(body []byte, f func(now model.Time, j *model.Job) error) error {
	d := dec{s: string(body)}
	fields := d.array()
	var now model.Time
	for i := range fields {
		switch i {
		case 0:
			now = model.Time(d.int())
		case 1:
			for range d.array() {
				if d.err != nil {
					break
				}
				n := d.array()
				if n < 0 {
					continue
				}
				r.readJob(&d, n)
				if d.err != nil {
					break
				}
				if err := f(now, &r.job); err != nil {
					return err
				}
			}
		default:
			d.skip(1)
		}
		if d.err != nil {
			return d.err
		}
	}
	return d.err
}

// Clone gives a job of its own. It shares strings with the chunk that it came in.
func Clone(j *model.Job) *model.Job {
	c := *j
	c.Tasks = append(model.TaskSet(nil), j.Tasks...)
	c.Deps = append([]model.Dep(nil), j.Deps...)
	s := *j.Spec
	s.Partitions = append([]string(nil), s.Partitions...)
	s.Gres = append([]model.GresReq(nil), s.Gres...)
	s.ReqNodes = append([]string(nil), s.ReqNodes...)
	s.ExcNodes = append([]string(nil), s.ExcNodes...)
	s.Deps = append([]model.Dep(nil), s.Deps...)
	s.Tasklist = append(model.TaskSet(nil), s.Tasklist...)
	c.Spec = &s
	if j.Run != nil {
		run := *j.Run
		if run.Alloc != nil {
			run.Alloc = &model.Alloc{Nodes: append([]model.NodeAlloc(nil), run.Alloc.Nodes...)}
			for i := range run.Alloc.Nodes {
				n := &run.Alloc.Nodes[i]
				n.CPUs = append(model.Bits(nil), n.CPUs...)
				n.Gres = append([]model.GresAlloc(nil), n.Gres...)
				for k := range n.Gres {
					n.Gres[k].Index = append(model.Bits(nil), n.Gres[k].Index...)
				}
			}
		}
		c.Run = &run
	}
	if j.End != nil {
		end := *j.End
		c.End = &end
	}
	return &c
}

func (r *Reader) readJob(d *dec, n int) {
	r.job = model.Job{Tasks: r.job.Tasks[:0], Deps: r.job.Deps[:0]}
	j := &r.job
	r.readSpec(d, 0)
	j.Spec = &r.spec
	for i := range n {
		switch i {
		case 0:
			j.ID = model.JobID(d.int())
		case 1:
			j.ArrayID = model.JobID(d.int())
		case 2:
			j.Task = int32(d.int())
		case 3:
			j.Tasks = readTasks(d, j.Tasks)
		case 4:
			j.Throttle = int32(d.int())
		case 5:
			r.readSpec(d, d.array())
		case 6:
			j.State = model.JobState(d.int())
		case 7:
			j.Reason = model.Reason(d.int())
		case 8:
			j.Why = d.str()
		case 9:
			j.Hold = model.HoldKind(d.int())
		case 10:
			j.Priority = uint32(d.int())
		case 11:
			j.Submit = model.Time(d.int())
		case 12:
			j.Eligible = model.Time(d.int())
		case 13:
			j.Begin = model.Time(d.int())
		case 14:
			j.Deps = readDeps(d, j.Deps)
		case 15:
			j.Attempt = uint32(d.int())
		case 16:
			j.Restarts = uint32(d.int())
		case 17:
			if n := d.array(); n >= 0 {
				r.readRun(d, n)
				j.Run = &r.run
			}
		case 18:
			if n := d.array(); n >= 0 {
				r.readEnd(d, n)
				j.End = &r.end
			}
		case 19:
			j.Comment = d.str()
		default:
			d.skip(1)
		}
		if d.err != nil {
			return
		}
	}
}

func (r *Reader) readSpec(d *dec, n int) {
	r.spec = model.Spec{Partitions: r.spec.Partitions[:0], Gres: r.spec.Gres[:0], ReqNodes: r.spec.ReqNodes[:0],
		ExcNodes: r.spec.ExcNodes[:0], Deps: r.spec.Deps[:0], Tasklist: r.spec.Tasklist[:0]}
	s := &r.spec
	for i := range n {
		switch i {
		case 0:
			s.Name = d.str()
		case 1:
			s.UID = uint32(d.int())
		case 2:
			s.GID = uint32(d.int())
		case 4:
			s.User = d.str()
		case 5:
			s.Group = d.str()
		case 6:
			s.Account = d.str()
		case 7:
			s.QOS = d.str()
		case 8:
			s.Partitions = readStrings(d, s.Partitions)
		case 9:
			s.Comment = d.str()
		case 13:
			s.Command = d.str()
		case 14:
			s.Submit = d.str()
		case 15:
			s.WorkDir = d.str()
		case 16:
			s.StdIn = d.str()
		case 17:
			s.StdOut = d.str()
		case 18:
			s.StdErr = d.str()
		case 19:
			s.Append = d.bool()
		case 20:
			s.Umask = uint32(d.int())
		case 22:
			s.Host = d.str()
		case 23:
			s.MinNodes = int32(d.int())
		case 24:
			s.MaxNodes = int32(d.int())
		case 25:
			s.Tasks = int32(d.int())
		case 26:
			s.TasksPerNode = int32(d.int())
		case 27:
			s.CPUsPerTask = int32(d.int())
		case 28:
			s.MemPerNode = d.int()
		case 29:
			s.MemPerCPU = d.int()
		case 30:
			s.TmpMiB = d.int()
		case 31:
			s.Gres = readGresReq(d, s.Gres)
		case 32:
			s.Exclusive = d.bool()
		case 33:
			s.Features = d.str()
		case 34:
			s.ReqNodes = readStrings(d, s.ReqNodes)
		case 35:
			s.ExcNodes = readStrings(d, s.ExcNodes)
		default:
			if !r.readSpecTimes(d, i) {
				d.skip(1)
			}
		}
		if d.err != nil {
			return
		}
	}
}

// readSpecTimes reads the fields of a Spec that say when and in what order it runs.
func (r *Reader) readSpecTimes(d *dec, field int) bool {
	s := &r.spec
	switch field {
	case 36:
		s.LimitS = d.int()
	case 37:
		s.Nice = int32(d.int())
	case 38:
		s.PrioReq = uint32(d.int())
	case 39:
		s.HoldReq = d.bool()
	case 40:
		s.Begin = model.Time(d.int())
	case 41:
		s.Deadline = model.Time(d.int())
	case 42:
		s.Requeue = d.bool()
	case 43:
		s.KillOnDep = d.bool()
	case 44:
		s.DepText = d.str()
	case 45:
		s.DepAny = d.bool()
	case 46:
		s.Deps = readDeps(d, s.Deps)
	case 47:
		s.ArrayText = d.str()
	case 48:
		s.Tasklist = readTasks(d, s.Tasklist)
	case 49:
		s.Throttle = int32(d.int())
	case 50:
		s.Overcommit = d.bool()
	case 51:
		s.NoRequeue = d.bool()
	case 52:
		s.MinCPUs = int32(d.int())
	default:
		return false
	}
	return true
}

func (r *Reader) readRun(d *dec, n int) {
	r.run = model.Run{}
	x := &r.run
	for i := range n {
		switch i {
		case 0:
			x.Partition = d.str()
		case 1:
			if n := d.array(); n >= 0 {
				r.readAlloc(d, n)
				x.Alloc = &r.alloc
			}
		case 2:
			x.Start = model.Time(d.int())
		case 3:
			x.Launched = model.Time(d.int())
		case 4:
			x.LimitS = d.int()
		case 5:
			x.Stop = model.StopCause(d.int())
		case 6:
			x.StopAt = model.Time(d.int())
		case 7:
			x.StopUID = uint32(d.int())
		case 8:
			x.Epoch = uint64(d.int())
		default:
			d.skip(1)
		}
		if d.err != nil {
			return
		}
	}
}

func (r *Reader) readAlloc(d *dec, n int) {
	nodes := r.alloc.Nodes[:0]
	for i := range n {
		if i > 0 {
			d.skip(1)
			continue
		}
		for range d.array() {
			if d.err != nil {
				break
			}
			var a model.NodeAlloc
			if len(nodes) < cap(nodes) { // its slices are used again
				a = nodes[:len(nodes)+1][len(nodes)]
			}
			nodes = append(nodes, readNodeAlloc(d, a))
		}
	}
	r.alloc.Nodes = nodes
}

func readNodeAlloc(d *dec, old model.NodeAlloc) model.NodeAlloc {
	a := model.NodeAlloc{CPUs: old.CPUs[:0], Gres: old.Gres[:0]}
	for i := range d.array() {
		switch i {
		case 0:
			a.Node = d.str()
		case 1:
			a.CPUs = readBits(d, a.CPUs)
		case 2:
			a.MemMiB = d.int()
		case 3:
			for range d.array() {
				if d.err != nil {
					break
				}
				a.Gres = append(a.Gres, readGresAlloc(d))
			}
		case 4:
			a.Tasks = int32(d.int())
		default:
			d.skip(1)
		}
		if d.err != nil {
			break
		}
	}
	return a
}

func readGresAlloc(d *dec) (g model.GresAlloc) {
	for i := range d.array() {
		switch i {
		case 0:
			g.Name = d.str()
		case 1:
			g.Type = d.str()
		case 2:
			g.Index = readBits(d, nil)
		default:
			d.skip(1)
		}
		if d.err != nil {
			break
		}
	}
	return g
}

func (r *Reader) readEnd(d *dec, n int) {
	r.end = model.End{}
	x := &r.end
	for i := range n {
		switch i {
		case 0:
			x.At = model.Time(d.int())
		case 1:
			x.Exit = readExit(d)
		case 2:
			x.UID = uint32(d.int())
		default:
			d.skip(1)
		}
		if d.err != nil {
			return
		}
	}
}

func readExit(d *dec) (x model.Exit) {
	for i := range d.array() {
		switch i {
		case 0:
			x.Code = int32(d.int())
		case 1:
			x.Signal = int32(d.int())
		case 2:
			x.Unknown = d.bool()
		case 3:
			x.OOM = d.bool()
		case 4:
			x.UserMS = d.int()
		case 5:
			x.SysMS = d.int()
		case 6:
			x.MaxRSSKB = d.int()
		case 7:
			x.Text = d.str()
		default:
			d.skip(1)
		}
		if d.err != nil {
			break
		}
	}
	return x
}

func readStrings(d *dec, out []string) []string {
	for range d.array() {
		if d.err != nil {
			break
		}
		out = append(out, d.str())
	}
	return out
}

func readBits(d *dec, out model.Bits) model.Bits {
	for range d.array() {
		if d.err != nil {
			break
		}
		out = append(out, uint64(d.int()))
	}
	return out
}

func readTasks(d *dec, out model.TaskSet) model.TaskSet {
	for range d.array() {
		if d.err != nil {
			break
		}
		var r model.Range
		for i := range d.array() {
			switch i {
			case 0:
				r.Lo = int32(d.int())
			case 1:
				r.Hi = int32(d.int())
			case 2:
				r.Step = int32(d.int())
			default:
				d.skip(1)
			}
			if d.err != nil {
				break
			}
		}
		out = append(out, r)
	}
	if !out.Valid() { // nobody else checks what a controller of another make may send
		d.fail(errKind)
	}
	return out
}

func readDeps(d *dec, out []model.Dep) []model.Dep {
	for range d.array() {
		if d.err != nil {
			break
		}
		var x model.Dep
		for i := range d.array() {
			switch i {
			case 0:
				x.Kind = model.DepKind(d.int())
			case 1:
				x.Job = model.JobID(d.int())
			case 2:
				x.Task = int32(d.int())
			case 3:
				x.DelayS = d.int()
			case 4:
				x.Failed = d.bool()
			default:
				d.skip(1)
			}
			if d.err != nil {
				break
			}
		}
		out = append(out, x)
	}
	return out
}

func readGresReq(d *dec, out []model.GresReq) []model.GresReq {
	for range d.array() {
		if d.err != nil {
			break
		}
		var g model.GresReq
		for i := range d.array() {
			switch i {
			case 0:
				g.Name = d.str()
			case 1:
				g.Type = d.str()
			case 2:
				g.Count = int32(d.int())
			case 3:
				g.Per = model.GresPer(d.int())
			default:
				d.skip(1)
			}
			if d.err != nil {
				break
			}
		}
		out = append(out, g)
	}
	return out
}
