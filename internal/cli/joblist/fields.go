package joblist

import (
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// tables have for each struct of a job, field by field, how it is read.
type tables struct {
	job     []setter[model.Job]
	spec    []setter[model.Spec]
	license []setter[model.LicenseCount]
	run     []setter[model.Run]
	alloc   []setter[model.Alloc]
	node    []setter[model.NodeAlloc]
	held    []setter[model.GresAlloc]
	end     []setter[model.End]
	exit    []setter[model.Exit]
	dep     []setter[model.Dep]
	tasks   []setter[model.Range]
	gres    []setter[model.GresReq]
}

func newTables(r *Reader) *tables {
	t := &tables{}
	t.tasks = inOrder(map[string]setter[model.Range]{
		"Lo":   func(d *dec, x *model.Range) { x.Lo = int32(d.int()) },
		"Hi":   func(d *dec, x *model.Range) { x.Hi = int32(d.int()) },
		"Step": func(d *dec, x *model.Range) { x.Step = int32(d.int()) },
	})
	t.dep = inOrder(map[string]setter[model.Dep]{
		"Kind":   func(d *dec, x *model.Dep) { x.Kind = model.DepKind(d.int()) },
		"Job":    func(d *dec, x *model.Dep) { x.Job = model.JobID(d.int()) },
		"Task":   func(d *dec, x *model.Dep) { x.Task = int32(d.int()) },
		"DelayS": func(d *dec, x *model.Dep) { x.DelayS = d.int() },
		"Failed": func(d *dec, x *model.Dep) { x.Failed = d.bool() },
		"Why":    func(d *dec, x *model.Dep) { x.Why = d.str() },
	})
	t.gres = inOrder(map[string]setter[model.GresReq]{
		"Name":  func(d *dec, x *model.GresReq) { x.Name = d.str() },
		"Type":  func(d *dec, x *model.GresReq) { x.Type = d.str() },
		"Count": func(d *dec, x *model.GresReq) { x.Count = int32(d.int()) },
		"Per":   func(d *dec, x *model.GresReq) { x.Per = model.GresPer(d.int()) },
		"Milli": func(d *dec, x *model.GresReq) { x.Milli = int32(d.int()) },
	})
	t.license = inOrder(map[string]setter[model.LicenseCount]{
		"Name":  func(d *dec, x *model.LicenseCount) { x.Name = d.str() },
		"Count": func(d *dec, x *model.LicenseCount) { x.Count = d.int() },
	})
	t.runTables(r)
	t.spec = specTable(t)
	expect := inOrder(map[string]setter[model.Expect]{
		"Start": func(d *dec, x *model.Expect) { x.Start = model.Time(d.int()) },
		"Nodes": func(d *dec, x *model.Expect) { x.Nodes = readStrings(d, nil) },

		"LimitS":     func(d *dec, x *model.Expect) { x.LimitS = d.int() },
		"MemPerCPU":  func(d *dec, x *model.Expect) { x.MemPerCPU = d.int() },
		"MemPerNode": func(d *dec, x *model.Expect) { x.MemPerNode = d.int() },
		"Position":   func(d *dec, x *model.Expect) { x.Position = int32(d.int()) },
		"IdleS":      func(d *dec, x *model.Expect) { x.IdleS = d.int() },
	})
	t.job = inOrder(map[string]setter[model.Job]{
		"ID":         func(d *dec, j *model.Job) { j.ID = model.JobID(d.int()) },
		"ArrayID":    func(d *dec, j *model.Job) { j.ArrayID = model.JobID(d.int()) },
		"Task":       func(d *dec, j *model.Job) { j.Task = int32(d.int()) },
		"Tasks":      func(d *dec, j *model.Job) { j.Tasks = tasks(d, t.tasks, j.Tasks) },
		"Throttle":   func(d *dec, j *model.Job) { j.Throttle = int32(d.int()) },
		"Spec":       func(d *dec, _ *model.Job) { read(d, d.array(), t.spec, &r.spec) },
		"State":      func(d *dec, j *model.Job) { j.State = model.JobState(d.int()) },
		"Reason":     func(d *dec, j *model.Job) { j.Reason = model.Reason(d.int()) },
		"Why":        func(d *dec, j *model.Job) { j.Why = d.str() },
		"Hold":       func(d *dec, j *model.Job) { j.Hold = model.HoldKind(d.int()) },
		"Priority":   func(d *dec, j *model.Job) { j.Priority = uint32(d.int()) },
		"Submit":     func(d *dec, j *model.Job) { j.Submit = model.Time(d.int()) },
		"Eligible":   func(d *dec, j *model.Job) { j.Eligible = model.Time(d.int()) },
		"Begin":      func(d *dec, j *model.Job) { j.Begin = model.Time(d.int()) },
		"Deps":       func(d *dec, j *model.Job) { j.Deps = list(d, t.dep, j.Deps) },
		"Attempt":    func(d *dec, j *model.Job) { j.Attempt = uint32(d.int()) },
		"Restarts":   func(d *dec, j *model.Job) { j.Restarts = uint32(d.int()) },
		"Direct":     func(d *dec, j *model.Job) { j.Direct = d.bool() },
		"Site":       func(d *dec, j *model.Job) { j.Site = int32(d.int()) },
		"Comment":    func(d *dec, j *model.Job) { j.Comment = d.str() },
		"Strikes":    func(d *dec, j *model.Job) { j.Strikes = uint32(d.int()) },
		"Avoid":      func(d *dec, j *model.Job) { j.Avoid = readStrings(d, nil) },
		"Accrue":     func(d *dec, j *model.Job) { j.Accrue = model.Time(d.int()) },
		"AvoidUntil": func(d *dec, j *model.Job) { j.AvoidUntil = model.Time(d.int()) },
		"Run": func(d *dec, j *model.Job) {
			if n := d.array(); n >= 0 {
				r.run, j.Run = model.Run{}, &r.run
				read(d, n, t.run, &r.run)
			}
		},
		"Expect": func(d *dec, j *model.Job) {
			if n := d.array(); n >= 0 {
				j.Expect = &model.Expect{}
				read(d, n, expect, j.Expect)
			}
		},
		"End": func(d *dec, j *model.Job) {
			if n := d.array(); n >= 0 {
				r.end, j.End = model.End{}, &r.end
				read(d, n, t.end, &r.end)
			}
		},
	})
	return t
}

func (t *tables) runTables(r *Reader) {
	share := inOrder(map[string]setter[model.GPUShare]{
		"GPU":    func(d *dec, x *model.GPUShare) { x.GPU = int32(d.int()) },
		"Of":     func(d *dec, x *model.GPUShare) { x.Of = int32(d.int()) },
		"MemMiB": func(d *dec, x *model.GPUShare) { x.MemMiB = d.int() },
	})
	t.held = inOrder(map[string]setter[model.GresAlloc]{
		"Name":  func(d *dec, x *model.GresAlloc) { x.Name = d.str() },
		"Type":  func(d *dec, x *model.GresAlloc) { x.Type = d.str() },
		"Index": func(d *dec, x *model.GresAlloc) { x.Index = readBits(d, nil) },
		"Share": func(d *dec, x *model.GresAlloc) {
			if n := d.array(); n >= 0 {
				x.Share = &model.GPUShare{}
				read(d, n, share, x.Share)
			}
		},
	})
	t.node = inOrder(map[string]setter[model.NodeAlloc]{
		"Node":   func(d *dec, x *model.NodeAlloc) { x.Node = d.str() },
		"CPUs":   func(d *dec, x *model.NodeAlloc) { x.CPUs = readBits(d, x.CPUs) },
		"MemMiB": func(d *dec, x *model.NodeAlloc) { x.MemMiB = d.int() },
		"Gres":   func(d *dec, x *model.NodeAlloc) { x.Gres = list(d, t.held, x.Gres) },
		"Tasks":  func(d *dec, x *model.NodeAlloc) { x.Tasks = int32(d.int()) },
	})
	t.alloc = inOrder(map[string]setter[model.Alloc]{
		"Nodes": func(d *dec, x *model.Alloc) {
			for range d.array() {
				if d.err != nil {
					break
				}
				if len(x.Nodes) < cap(x.Nodes) { // its slices are used again
					x.Nodes = x.Nodes[:len(x.Nodes)+1]
				} else {
					x.Nodes = append(x.Nodes, model.NodeAlloc{})
				}
				n := &x.Nodes[len(x.Nodes)-1]
				*n = model.NodeAlloc{CPUs: n.CPUs[:0], Gres: n.Gres[:0]}
				read(d, d.array(), t.node, n)
			}
		},
	})
	t.run = inOrder(map[string]setter[model.Run]{
		"Partition":  func(d *dec, x *model.Run) { x.Partition = d.str() },
		"Start":      func(d *dec, x *model.Run) { x.Start = model.Time(d.int()) },
		"Launched":   func(d *dec, x *model.Run) { x.Launched = model.Time(d.int()) },
		"LimitS":     func(d *dec, x *model.Run) { x.LimitS = d.int() },
		"Stop":       func(d *dec, x *model.Run) { x.Stop = model.StopCause(d.int()) },
		"StopAt":     func(d *dec, x *model.Run) { x.StopAt = model.Time(d.int()) },
		"StopUID":    func(d *dec, x *model.Run) { x.StopUID = uint32(d.int()) },
		"Epoch":      func(d *dec, x *model.Run) { x.Epoch = uint64(d.int()) },
		"Priority":   func(d *dec, x *model.Run) { x.Priority = uint32(d.int()) },
		"BillRate":   func(d *dec, x *model.Run) { x.BillRate = d.int() },
		"Factor":     func(d *dec, x *model.Run) { x.Factor = d.int() },
		"AssocPart":  func(d *dec, x *model.Run) { x.AssocPart = d.str() },
		"GraceS":     func(d *dec, x *model.Run) { x.GraceS = d.int() },
		"StopWhy":    func(d *dec, x *model.Run) { x.StopWhy = d.str() },
		"Resv":       func(d *dec, x *model.Run) { x.Resv = d.str() },
		"PartQOS":    func(d *dec, x *model.Run) { x.PartQOS = d.str() },
		"StopReason": func(d *dec, x *model.Run) { x.StopReason = model.Reason(d.int()) },
		"Warned":     func(d *dec, x *model.Run) { x.Warned = model.Time(d.int()) },
		"Mailed":     func(d *dec, x *model.Run) { x.Mailed = int32(d.int()) },
		"FailedNode": func(d *dec, x *model.Run) { x.FailedNode = d.str() },
		"StopFor":    func(d *dec, x *model.Run) { x.StopFor = model.JobID(d.int()) },
		"Licenses":   func(d *dec, x *model.Run) { x.Licenses = list(d, t.license, x.Licenses) },
		"Share":      func(d *dec, x *model.Run) { x.Share = int32(d.int()) },
		"Alone":      func(d *dec, x *model.Run) { x.Alone = d.bool() },
		"Sleep":      func(d *dec, x *model.Run) { x.Sleep = model.SleepKind(d.int()) },
		"SleepAt":    func(d *dec, x *model.Run) { x.SleepAt = model.Time(d.int()) },
		"SleepMS":    func(d *dec, x *model.Run) { x.SleepMS = d.int() },
		"Turns":      func(d *dec, x *model.Run) { x.Turns = uint32(d.int()) },
		"Gate":       func(d *dec, x *model.Run) { x.Gate = model.Gate(d.int()) },
		"Unready":    func(d *dec, x *model.Run) { x.Unready = readBits(d, nil) },
		"Busy":       func(d *dec, x *model.Run) { x.Busy = readBits(d, nil) },
		"Fault":      func(d *dec, x *model.Run) { x.Fault = d.str() },
		"Over": func(d *dec, x *model.Run) {
			if n := d.array(); n >= 0 {
				x.Over = &model.End{}
				read(d, n, t.end, x.Over)
			}
		},
		"Alloc": func(d *dec, x *model.Run) {
			if n := d.array(); n >= 0 {
				r.alloc.Nodes, x.Alloc = r.alloc.Nodes[:0], &r.alloc
				read(d, n, t.alloc, &r.alloc)
			}
		},
	})
	t.exit = inOrder(map[string]setter[model.Exit]{
		"Code":     func(d *dec, x *model.Exit) { x.Code = int32(d.int()) },
		"Signal":   func(d *dec, x *model.Exit) { x.Signal = int32(d.int()) },
		"Unknown":  func(d *dec, x *model.Exit) { x.Unknown = d.bool() },
		"OOM":      func(d *dec, x *model.Exit) { x.OOM = d.bool() },
		"UserMS":   func(d *dec, x *model.Exit) { x.UserMS = d.int() },
		"SysMS":    func(d *dec, x *model.Exit) { x.SysMS = d.int() },
		"MaxRSSKB": func(d *dec, x *model.Exit) { x.MaxRSSKB = d.int() },
		"Text":     func(d *dec, x *model.Exit) { x.Text = d.str() },
		"Use":      func(d *dec, x *model.Exit) { x.Use = usage(d) },
		"NoStart":  func(d *dec, x *model.Exit) { x.NoStart = d.bool() },
	})
	t.end = inOrder(map[string]setter[model.End]{
		"At":   func(d *dec, x *model.End) { x.At = model.Time(d.int()) },
		"Exit": func(d *dec, x *model.End) { read(d, d.array(), t.exit, &x.Exit) },
		"UID":  func(d *dec, x *model.End) { x.UID = uint32(d.int()) },
	})
}

func specTable(t *tables) []setter[model.Spec] {
	type spec = model.Spec
	return inOrder(map[string]setter[spec]{
		"Name":         func(d *dec, s *spec) { s.Name = d.str() },
		"UID":          func(d *dec, s *spec) { s.UID = uint32(d.int()) },
		"GID":          func(d *dec, s *spec) { s.GID = uint32(d.int()) },
		"User":         func(d *dec, s *spec) { s.User = d.str() },
		"Group":        func(d *dec, s *spec) { s.Group = d.str() },
		"Account":      func(d *dec, s *spec) { s.Account = d.str() },
		"QOS":          func(d *dec, s *spec) { s.QOS = d.str() },
		"Partitions":   func(d *dec, s *spec) { s.Partitions = readStrings(d, s.Partitions) },
		"Comment":      func(d *dec, s *spec) { s.Comment = d.str() },
		"More":         func(d *dec, s *spec) { s.More = decoded[model.Needs](d) },
		"Warning":      func(d *dec, s *spec) { s.Warning = decoded[model.Warning](d) },
		"Reservation":  func(d *dec, s *spec) { s.Reservation = d.str() },
		"Command":      func(d *dec, s *spec) { s.Command = d.str() },
		"Submit":       func(d *dec, s *spec) { s.Submit = d.str() },
		"WorkDir":      func(d *dec, s *spec) { s.WorkDir = d.str() },
		"StdIn":        func(d *dec, s *spec) { s.StdIn = d.str() },
		"StdOut":       func(d *dec, s *spec) { s.StdOut = d.str() },
		"StdErr":       func(d *dec, s *spec) { s.StdErr = d.str() },
		"Append":       func(d *dec, s *spec) { s.Append = d.bool() },
		"Umask":        func(d *dec, s *spec) { s.Umask = uint32(d.int()) },
		"Host":         func(d *dec, s *spec) { s.Host = d.str() },
		"MinNodes":     func(d *dec, s *spec) { s.MinNodes = int32(d.int()) },
		"MaxNodes":     func(d *dec, s *spec) { s.MaxNodes = int32(d.int()) },
		"Tasks":        func(d *dec, s *spec) { s.Tasks = int32(d.int()) },
		"TasksPerNode": func(d *dec, s *spec) { s.TasksPerNode = int32(d.int()) },
		"CPUsPerTask":  func(d *dec, s *spec) { s.CPUsPerTask = int32(d.int()) },
		"MemPerNode":   func(d *dec, s *spec) { s.MemPerNode = d.int() },
		"MemPerCPU":    func(d *dec, s *spec) { s.MemPerCPU = d.int() },
		"TmpMiB":       func(d *dec, s *spec) { s.TmpMiB = d.int() },
		"Gres":         func(d *dec, s *spec) { s.Gres = list(d, t.gres, s.Gres) },
		"Exclusive":    func(d *dec, s *spec) { s.Exclusive = d.bool() },
		"Features":     func(d *dec, s *spec) { s.Features = d.str() },
		"ReqNodes":     func(d *dec, s *spec) { s.ReqNodes = readStrings(d, s.ReqNodes) },
		"ExcNodes":     func(d *dec, s *spec) { s.ExcNodes = readStrings(d, s.ExcNodes) },
		"LimitS":       func(d *dec, s *spec) { s.LimitS = d.int() },
		"Nice":         func(d *dec, s *spec) { s.Nice = int32(d.int()) },
		"PrioReq":      func(d *dec, s *spec) { s.PrioReq = uint32(d.int()) },
		"HoldReq":      func(d *dec, s *spec) { s.HoldReq = d.bool() },
		"Begin":        func(d *dec, s *spec) { s.Begin = model.Time(d.int()) },
		"Deadline":     func(d *dec, s *spec) { s.Deadline = model.Time(d.int()) },
		"Requeue":      func(d *dec, s *spec) { s.Requeue = d.bool() },
		"KillOnDep":    func(d *dec, s *spec) { s.KillOnDep = d.bool() },
		"DepText":      func(d *dec, s *spec) { s.DepText = d.str() },
		"DepAny":       func(d *dec, s *spec) { s.DepAny = d.bool() },
		"Deps":         func(d *dec, s *spec) { s.Deps = list(d, t.dep, s.Deps) },
		"ArrayText":    func(d *dec, s *spec) { s.ArrayText = d.str() },
		"Tasklist":     func(d *dec, s *spec) { s.Tasklist = tasks(d, t.tasks, s.Tasklist) },
		"Throttle":     func(d *dec, s *spec) { s.Throttle = int32(d.int()) },
		"Overcommit":   func(d *dec, s *spec) { s.Overcommit = d.bool() },
		"NoRequeue":    func(d *dec, s *spec) { s.NoRequeue = d.bool() },
		"MinCPUs":      func(d *dec, s *spec) { s.MinCPUs = int32(d.int()) },
	})
}

// usage reads what a job that has ended used, with the generated codec.
func usage(d *dec) *model.Usage {
	from := d.at
	d.skip(1)
	raw := d.s[from:d.at]
	if d.err != nil || raw == "\xc0" {
		return nil
	}
	u := new(model.Usage)
	if err := proto.Decode([]byte(raw), u); err != nil {
		d.fail(err)
		return nil
	}
	return u
}

// decoded reads what few jobs have, with the generated codec: it need not be fast.
func decoded[T any, P interface {
	*T
	proto.Message
}](d *dec) *T {
	from := d.at
	d.skip(1)
	raw := d.s[from:d.at]
	if d.err != nil || raw == "\xc0" {
		return nil
	}
	n := new(T)
	if err := proto.Decode([]byte(raw), P(n)); err != nil {
		d.fail(err)
		return nil
	}
	return n
}
