package jobtext

import (
	"math"
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/walltime"
)

// RecordView has the data that the rows of one gacct table share.
type RecordView struct {
	Times
	BitLen    int      // SLURM_BITSTR_LEN
	Unit      byte     // --units: K, M, G, T, P; 0: the largest that keeps a number whole
	NoConvert bool     // memory in MiB, or measured memory in bytes
	Expand    bool     // --expand-patterns
	Numbers   *Numbers // nil: not known
	TRES      []string // the resources that the cluster counts, in order; nil: not known
}

// RecordRow is one line: a job's allocation, its batch step, or another of its steps (batch and step).
type RecordRow struct {
	*model.Record
	*RecordView
	Batch  bool
	OfStep *model.Step
}

// RowOfStep gives the line of a step. Its record is the job's, with the step's own values.
func RowOfStep(job, rec *model.Record, view *RecordView) *RecordRow {
	s, r := rec.Step, *job
	r.Name, r.State, r.Submit, r.Start, r.End, r.Exit, r.CancelUID = s.Name, s.State(), s.Start, s.Start, s.End, s.Exit,
		s.StopUID
	r.SuspendMS, r.SuspendAt = s.SleptMS, s.SleepAt
	if s.End == 0 {
		r.State = model.Running
	} else if signalled(&r) {
		r.State = model.Cancelled
	}
	r.Nodes, r.NumNodes, r.AllocCPUs, r.ReqCPUs = hostlist.Compress(s.Nodes), int32(len(s.Nodes)), s.CPUs, s.CPUs
	if s.MemMiB != 0 || r.NumNodes != job.NumNodes {
		r.AllocMemMiB = s.MemMiB
	}
	r.AllocGres, r.SubmitLine, r.Container = s.Gres, s.Submit, s.Container
	return &RecordRow{&r, view, true, s}
}

// RowOfBatch gives the line of a job's batch script. If the job had no steps, its usage is the job's.
func RowOfBatch(job *model.Record, view *RecordView) *RecordRow {
	if use := job.Exit.Use; use != nil && use.Batch != nil {
		r, own := *job, use.Batch
		r.Exit.UserMS, r.Exit.SysMS, r.Exit.MaxRSSKB = own.UserMS, own.SysMS, own.PeakKB
		r.Exit.Use = &model.Usage{Nodes: []model.NodeUsage{*own}}
		job = &r
	}
	if signalled(job) {
		r := *job
		r.State = model.Cancelled
		job = &r
	}
	return &RecordRow{job, view, true, nil}
}

// signalled reports whether a step's or a script's end was a signal that nobody asked for. In Slurm's accounting such a
// step is CANCELLED, and its job FAILED.
func signalled(r *model.Record) bool { return r.State == model.Failed && r.Exit.Signal != 0 }

// StepName is the part of the row's id after the point.
func (r *RecordRow) StepName() string {
	if r.OfStep != nil {
		return StepName(r.OfStep.ID)
	}
	return "batch"
}

// tasks counts the row's tasks.
func (r *RecordRow) tasks() int32 {
	if r.OfStep != nil {
		return max(1, r.OfStep.Tasks)
	}
	return 1
}

// HasBatch reports whether a job has got far enough to run a batch script.
func HasBatch(r *model.Record) bool {
	return !r.NoScript && r.Start != 0 && r.State != model.Pending && r.State != model.Configuring
}

// done reports whether the step's usage is known.
func (r *RecordRow) done() bool { return r.End != 0 }

// RecordID gives a job's id as users know it: 12, 12_3, 12+1.
func RecordID(r *model.Record) string {
	return string((&RecordRow{Record: r, RecordView: &RecordView{}}).appendID(nil, false))
}

// throttle gives how many of an array's tasks may run at once, while some of them wait; 0: any number.
func (r *RecordRow) throttle() int32 {
	_, most, _ := strings.Cut(r.TaskText, "%")
	n, err := strconv.ParseInt(most, 10, 32)
	if err != nil {
		return 0
	}
	return int32(n)
}

func (r *RecordRow) appendID(b []byte, raw bool) []byte {
	switch {
	case !raw && r.Het != nil:
		b = append(b, r.Het.Name()...)
	case raw || r.ArrayID == 0:
		b = strconv.AppendUint(b, uint64(r.Job), 10)
	case r.Task != model.NoTask:
		b = strconv.AppendUint(b, uint64(r.ArrayID), 10)
		b = strconv.AppendInt(append(b, '_'), int64(r.Task), 10)
	case r.TaskText != "":
		list, _, _ := strings.Cut(r.TaskText, "%")
		if set, _, err := model.ParseTaskSet(list, math.MaxInt32); err == nil {
			list = TasksText(set)
		}
		b = strconv.AppendUint(b, uint64(r.ArrayID), 10)
		b = append(appendTasks(append(b, "_["...), list, r.throttle(), r.BitLen), ']')
	default:
		b = strconv.AppendUint(b, uint64(r.Job), 10)
	}
	if r.Batch {
		b = append(append(b, '.'), r.StepName()...)
	}
	return b
}

func (r *RecordRow) state() string {
	if r.State == model.Cancelled && (!r.Batch || r.OfStep != nil && r.OfStep.ID >= 0 && r.OfStep.Stop != model.NoStop) {
		if by, ok := r.killer(); ok {
			return "CANCELLED by " + strconv.FormatUint(uint64(by), 10)
		}
	}
	if r.State == model.Requeued && r.Batch && r.OfStep == nil {
		if r.Exit.Code != 0 && r.Exit.Signal == 0 { // the job went back because its script had ended so (RequeueExit)
			return model.Failed.String()
		}
		return model.Cancelled.String() // the job went back, its script was ended
	}
	return r.State.String()
}

// elapsedS gives how long the job has had its resources, seconds.
func (r *RecordRow) elapsedS() int64 { return r.HeldS(r.until()) }

// suspendedS gives how long the job was suspended, seconds.
func (r *RecordRow) suspendedS() int64 { return r.AsleepS(r.until()) }

// until is the job's end, or now.
func (r *RecordRow) until() model.Time {
	if r.End != 0 {
		return r.End
	}
	return model.Time(r.Now.UnixMilli())
}

// plannedS gives how long the job was eligible before it started, seconds.
func (r *RecordRow) plannedS() int64 {
	switch {
	case r.Eligible == 0:
		return 0
	case r.Start != 0:
		return max(0, r.Start.Seconds()-r.Eligible.Seconds())
	case r.End != 0:
		return max(0, r.End.Seconds()-r.Eligible.Seconds())
	}
	return max(0, r.Now.Unix()-r.Eligible.Seconds())
}

func (r *RecordRow) reqCPUs() int64 { return int64(max(1, r.ReqCPUs)) }

// nodes gives how many nodes the row has: the batch step runs on one.
func (r *RecordRow) nodes() int64 {
	if r.Batch && r.OfStep == nil {
		return 1
	}
	return int64(max(1, r.NumNodes))
}

// perNode divides what a job holds by its nodes for the batch step, which has the first one's part. The record holds
// sums only: where nodes differ this is their mean.
func (r *RecordRow) perNode(n int64) int64 {
	if !r.Batch || r.OfStep != nil {
		return n
	}
	k := int64(max(1, r.NumNodes))
	return (n + k - 1) / k
}

func (r *RecordRow) cpus() int64 {
	if r.AllocCPUs == 0 {
		return r.reqCPUs()
	}
	return r.perNode(int64(r.AllocCPUs))
}

func (r *RecordRow) batchHost() string {
	if r.Nodes == "" {
		return ""
	}
	hosts, err := hostlist.Expand(r.Nodes)
	if err != nil || len(hosts) == 0 {
		return r.Nodes
	}
	return hosts[0]
}

func (r *RecordRow) nodeList() string {
	switch {
	case r.Nodes == "":
		return "None assigned"
	case r.Batch && r.OfStep == nil:
		return r.batchHost()
	}
	return r.Nodes
}

// mem writes memory given in MiB.
func (r *RecordRow) mem(mib int64) string {
	switch {
	case mib <= 0:
		return "0"
	case r.Unit != 0:
		return walltime.FormatIn(mib, 'M', r.Unit)
	case r.NoConvert:
		return strconv.FormatInt(mib, 10) + "M"
	}
	return walltime.FormatMem(mib)
}

// asked gives the job's request apart from CPUs and generic resources. Records of older controllers don't have it: then
// it is the job's nodes, and a billing unit per CPU.
func (r *RecordRow) asked() (nodes, memMiB, bill int64) {
	nodes = int64(max(1, r.NumNodes))
	memMiB = r.ReqMemMiB * nodes
	if r.Asked == nil {
		return nodes, memMiB, r.reqCPUs()
	}
	if r.Asked.MemMiB > 0 {
		memMiB = r.Asked.MemMiB
	}
	return int64(max(1, r.Asked.Nodes)), memMiB, r.Asked.Bill
}

// asks gives what the job asked for as far as the record has it.
func (r *RecordRow) asks() model.Asked {
	if r.Asked == nil {
		return model.Asked{}
	}
	return *r.Asked
}

// held gives the licenses that the job held. A step holds none.
func (r *RecordRow) held() []model.LicenseCount {
	if r.Batch {
		return nil
	}
	return r.asks().Held
}

// licenses gives those that the job held or, if it never started, asked for.
func (r *RecordRow) licenses() string {
	list := r.asks().Held
	if len(list) == 0 {
		list = r.asks().Licenses
	}
	return ask.LicensesText(list, false)
}

// billed gives the billing units that the job held. A step is not billed.
func (r *RecordRow) billed() int64 {
	switch {
	case r.Batch:
		return notBilled
	case r.Asked == nil:
		return r.cpus()
	}
	return r.Asked.Billed
}

// used gives the usage of the batch step, once it has ended; nil for other rows.
func (r *RecordRow) used() *UsageText {
	if !r.Batch || !r.done() {
		return nil
	}
	return &UsageText{Usage: r.usage(), unit: r.Unit, noConvert: r.NoConvert}
}

// usage gives the measured usage; records from before there were samples have only CPU time and peak memory.
func (r *RecordRow) usage() *model.Usage {
	if r.Exit.Use != nil {
		return r.Exit.Use
	}
	return &model.Usage{Nodes: []model.NodeUsage{{Node: r.batchHost(), Tasks: r.tasks(), UserMS: r.Exit.UserMS,
		SysMS: r.Exit.SysMS, PeakKB: r.Exit.MaxRSSKB}}}
}

func (r *RecordRow) energyJ() int64 { return r.Exit.Use.EnergyMJ() / 1000 }

// start writes when it began; a job that was cancelled before that has its end there.
func (r *RecordRow) start() string {
	if r.Start == 0 && r.State == model.Cancelled && !r.Batch {
		return r.stamp(r.End)
	}
	return r.stamp(r.Start)
}

// layoutOf gives how the tasks of a step were spread over its nodes: as its command says, otherwise in blocks, or one
// on each node where there are as many.
func layoutOf(s *model.Step) string {
	words := strings.Fields(s.Submit)
	for i, w := range words {
		how, given := strings.CutPrefix(w, "--distribution=")
		if !given && (w == "-m" || w == "--distribution") && i+1 < len(words) {
			how, given = words[i+1], true
		} else if !given && strings.HasPrefix(w, "-m") && !strings.HasPrefix(w, "--") && len(w) > 3 {
			how, given = w[2:], true
		}
		for _, name := range [...]string{"Block", "Cyclic", "Plane", "Arbitrary"} {
			if given && strings.HasPrefix(strings.ToLower(how), strings.ToLower(name)) {
				return name
			}
		}
	}
	if int(s.Tasks) > len(s.Nodes) {
		return "Block"
	}
	return "Cyclic"
}

// energy writes what the GPUs have used; a job of which that is not known has none, its steps, and one that never ran,
// have 0.
func (r *RecordRow) energy(text func(int64) string) string {
	if j := r.energyJ(); j != 0 || r.OfStep != nil || r.Batch || r.Start == 0 && r.End != 0 {
		return text(j)
	}
	return ""
}

func plainCount(n int64) string { return strconv.FormatInt(n, 10) }

// timelimit writes the limit; a pending job without a limit of its own has none yet.
func (r *RecordRow) timelimit(raw bool) string {
	switch {
	case r.LimitS >= model.Unlimited:
		return "UNLIMITED"
	case r.LimitS == model.NotSet:
		return "Partition_Limit"
	case raw:
		return strconv.FormatInt((r.LimitS+59)/60, 10)
	}
	return walltime.Elapsed(r.LimitS)
}

// stamp writes a moment of the row.
func (r *RecordRow) stamp(t model.Time) string { return string(r.Append(nil, t, "Unknown")) }

// exitCode gives ExitCode. A cancelled job ended by no code of its own; its batch step and its steps have the signal.
func (r *RecordRow) exitCode() string {
	if r.State == model.Cancelled && !r.Batch && r.OfStep == nil {
		return "0:0"
	}
	return exitText(r.Exit)
}

// WaitedFor gives Reason: the last thing that held the job up, other than its priority and free resources. Why it
// ended is not that.
func (r *RecordRow) WaitedFor() string {
	switch r.Reason {
	case model.ReasonPriority, model.ReasonResources, model.ReasonNonZeroExitCode, model.ReasonTimeLimit,
		model.ReasonRaisedSignal, model.ReasonOutOfMemory, model.ReasonSystemFailure, model.ReasonNodeDown:
		return model.ReasonNone.String()
	}
	return r.Reason.String()
}

// Flags gives the field Flags: who started the job, and that the database knows of it.
func (r *RecordRow) Flags() string {
	if r.Start != 0 {
		return "SchedMain,StartReceived"
	}
	return "StartReceived"
}

// Numbers are the numbers of associations and QOS. Jobs and records have their names only, so a number is what the name
// means now, and 0 once it is gone. The zero value has none.
type Numbers struct {
	assocs map[model.AssocKey]uint32
	qos    map[string]uint32
}

// Add takes the numbers of a part of the cluster's accounts.
func (n *Numbers) Add(c *proto.AccountsChunk) {
	if n.assocs == nil {
		n.assocs, n.qos = map[model.AssocKey]uint32{}, map[string]uint32{}
	}
	for _, a := range c.Assocs {
		n.assocs[a.Key()] = a.ID
	}
	for _, q := range c.QOS {
		n.qos[q.Name] = q.ID
	}
}

// OfAssoc gives the number of a user's association: in the partition, if there is one, or in the account.
func (n *Numbers) OfAssoc(account, user, part string) string {
	if n == nil {
		return "0"
	}
	key := model.AssocKey{Account: model.AccountName(account), User: user, Partition: part}
	id, ok := n.assocs[key]
	if !ok {
		key.Partition = ""
		id = n.assocs[key]
	}
	return strconv.FormatUint(uint64(id), 10)
}

func (n *Numbers) ofQOS(name string) string {
	if n == nil {
		return "0"
	}
	return strconv.FormatUint(uint64(n.qos[name]), 10)
}

// NeedNumbers reports whether a field of jobs or records shows Numbers.
func NeedNumbers(field string) bool { return field == "AssocID" || field == "QOSRAW" }
