package jobtext

import (
	"strconv"
	"strings"

	"gbatch/internal/ask"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// JobView has the data that the rows of one gqueue table share.
type JobView struct {
	Times
	At        model.Time // of the controller's answer
	BitLen    int        // SLURM_BITSTR_LEN: longest task list, bytes; 0: no limit
	NoConvert bool
	Expand    bool          // --expand-patterns
	Cluster   string        // for JSON
	Rules     *ask.Rulebook // partitions' defaults and bounds of requests; nil: not known
	Numbers   *Numbers      // nil: not known
}

// JobRow is one line: a job, or with -r one task of an array that has not started, or with -P a job in one of its
// partitions.
type JobRow struct {
	*model.Job
	*JobView
	SomeTasks    model.TaskSet // tasks of the job that this row shows
	OneTask      int32         // the row's only task, or model.NoTask
	OnePartition string        // "": the job's own
}

// DefaultBitLen is how much of a task list is shown unless SLURM_BITSTR_LEN says more.
const DefaultBitLen = 64

// appendTasks writes a task list as an array shows it, shortened with dots to limit bytes, and its throttle.
func appendTasks(b []byte, list string, throttle int32, limit int) []byte {
	if limit > 0 && len(list) > limit-3 {
		b = append(append(b, list[:max(0, limit-4)]...), "..."...)
	} else {
		b = append(b, list...)
	}
	if throttle > 0 {
		b = strconv.AppendInt(append(b, '%'), int64(throttle), 10)
	}
	return b
}

// appendID writes %i: 12, 12_3, 12_[4-9%2], 12+1.
func (r *JobRow) appendID(b []byte) []byte {
	if r.Het != nil {
		return append(b, r.Het.Name()...)
	}
	id := r.ID
	if r.ArrayID != 0 {
		id = r.ArrayID
	}
	b = strconv.AppendUint(b, uint64(id), 10)
	switch {
	case r.OneTask != model.NoTask:
		b = strconv.AppendInt(append(b, '_'), int64(r.OneTask), 10)
	case len(r.SomeTasks) > 0:
		b = append(appendTasks(append(b, "_["...), TasksText(r.SomeTasks), r.Throttle, r.BitLen), ']')
	}
	return b
}

// appendTaskID writes %K.
func (r *JobRow) appendTaskID(b []byte) []byte {
	switch {
	case r.OneTask != model.NoTask:
		return strconv.AppendInt(b, int64(r.OneTask), 10)
	case len(r.SomeTasks) > 0:
		return appendTasks(b, TasksText(r.SomeTasks), r.Throttle, r.BitLen)
	}
	return append(b, "N/A"...)
}

// partition gives %P: for a pending job all partitions that it asked for.
func (r *JobRow) partition() string {
	switch {
	case r.OnePartition != "":
		return r.OnePartition
	case r.Run != nil:
		return r.Run.Partition
	case len(r.Spec.Partitions) == 1:
		return r.Spec.Partitions[0]
	}
	return strings.Join(r.Spec.Partitions, ",")
}

func (r *JobRow) ShownPriority() uint32 {
	return shownPriority(r.Job)
}

func shownPriority(j *model.Job) uint32 {
	if j.Hold != model.NotHeld || j.State == model.Suspended {
		return 0
	}
	return j.Priority
}

// lastEval gives when the planner looked at a job last: it looks at all that may start, all the time.
func lastEval(j *model.Job, now model.Time) model.Time {
	switch {
	case j.Run != nil:
		return j.Run.Start
	case j.End != nil:
		return j.End.At
	case j.Eligible == 0:
		return j.Submit
	}
	return now
}

// nodeList gives %N.
func (r *JobRow) nodeList() string {
	if r.Run == nil || r.Run.Alloc == nil {
		return ""
	}
	if nodes := r.Run.Alloc.Nodes; len(nodes) == 1 {
		return nodes[0].Node
	}
	return hostlist.CompressSorted(r.Run.Alloc.NodeNames())
}

// appendWhere writes %R: the nodes, or in parentheses why there are none or why the job failed.
func (r *JobRow) appendWhere(b []byte) []byte {
	if r.showsReason() {
		b = append(append(b, '('), r.ReasonAt(r.At).String()...)
		if more := r.NotAvailText(); more != "" {
			b = append(append(b, ", "...), more...)
		}
		return append(b, ')')
	}
	return append(b, r.nodeList()...)
}

func (r *JobRow) showsReason() bool {
	switch r.State {
	case model.Pending, model.Failed, model.Timeout, model.OutOfMemory, model.Deadline, model.NodeFail:
		return true
	}
	return false
}

func (r *JobRow) batchHost() string {
	if r.Run == nil || r.Run.Alloc == nil || len(r.Run.Alloc.Nodes) == 0 {
		return "n/a"
	}
	return r.Run.Alloc.Nodes[0].Node
}

// Size gives nodes and CPUs: held or, for a pending job, asked for.
func (r *JobRow) Size() (nodes, cpus int) {
	if r.Run != nil && r.Run.Alloc != nil {
		for i := range r.Run.Alloc.Nodes {
			cpus += r.Run.Alloc.Nodes[i].CPUs.Count()
		}
		return len(r.Run.Alloc.Nodes), cpus
	}
	c := r.asks()
	size := c.Size()
	return size.Nodes, size.CPUs
}

// asks gives the job's request, in the row's partition if it has one.
func (r *JobRow) asks() ask.Counts { return ask.Of(r.Spec, r.askRules()) }

func (r *JobRow) askRules() *model.AskRules {
	if r.OnePartition != "" {
		return r.Rules.In(r.OnePartition, r.Spec.QOS)
	}
	return r.Rules.Of(r.Job)
}

// billing gives the billing units of what the job holds or, while it is pending, asks for.
func (r *JobRow) billing() int64 {
	if r.Run != nil {
		return r.Run.Billing()
	}
	return ask.Asked(r.Spec, r.askRules()).Bill
}

func (r *JobRow) numTasks() int { return ask.Job(r.Job, r.askRules()).Tasks }

// Begins gives %S: when the job started, is known to start, or (if it never did) ended.
func (r *JobRow) Begins() model.Time { return begins(r.Job, r.At) }

func begins(j *model.Job, now model.Time) model.Time {
	held := j.Hold != model.NotHeld
	switch {
	case j.Run != nil:
		return j.Run.Start
	case j.End != nil:
		return j.End.At
	case held && len(j.Delays(now)) > 0:
		return 0 // the minutes of after:JOB+MINUTES say nothing of when it is released
	case j.Begin > now:
		return j.Begin
	case j.Expect != nil && j.Expect.Start != 0 && !held:
		return max(j.Expect.Start, now)
	}
	return 0
}

// appendEnds writes %e: when the job ended, or will by its time limit.
func (r *JobRow) appendEnds(b []byte) []byte {
	end := endOf(r.Job, r.Begins(), r.At)
	if end == 0 && r.Run != nil {
		return append(b, "NONE"...)
	}
	return r.Append(b, end, "N/A")
}

// endOf gives when a job ended or will by its time limit, if it starts when it is expected to; 0: that isn't known. The
// end of a suspended job moves with the time.
func endOf(j *model.Job, start, now model.Time) model.Time {
	limit := j.TimeLimitS()
	switch {
	case j.End != nil:
		return j.End.At
	case j.Ending() != 0:
		return j.Ending()
	case j.Run != nil && j.Run.Deadline() != 0:
		return j.Run.Deadline()
	case start == 0 || limit >= model.Unlimited || limit == model.NotSet:
		return 0
	case j.Run != nil:
		return now.Add(max(0, limit-j.ElapsedS(now)))
	}
	return start.Add(limit)
}

// hardware gives what --sockets-per-node, --cores-per-socket and --threads-per-core asked for; * is anything.
func hardware(sp *model.Spec) (sockets, cores, threads string) {
	x := sp.Extra()
	return orAny(x.Sockets, "*"), orAny(x.CoresPerSocket, "*"), orAny(x.ThreadsPerCore, "*")
}

// orAny gives a number that was asked for, or what stands for any.
func orAny(n int32, any string) string {
	if n <= 0 {
		return any
	}
	return strconv.Itoa(int(n))
}

// maxNodes gives the most nodes that the job takes: those it has, or else those it asks for.
func (r *JobRow) maxNodes() int64 {
	nodes, _ := r.Size()
	if r.Run != nil && r.Run.Alloc != nil {
		return int64(nodes)
	}
	return max(int64(r.Spec.MaxNodes), int64(nodes))
}

// tasksText gives an array's tasks that wait, with how many of them may run at once: 0-9%2.
func (r *JobRow) tasksText() string {
	text := r.SomeTasks.String()
	if text == "" || r.Throttle == 0 {
		return text
	}
	return text + "%" + strconv.Itoa(int(r.Throttle))
}

// perGPU writes --cpus-per-gpu or --mem-per-gpu as Slurm does: gres/gpu:4.
func perGPU(n int64) string { return "gres/gpu:" + strconv.FormatInt(n, 10) }

func perGPUOrNA(n int64) string {
	if n == 0 {
		return "N/A"
	}
	return perGPU(n)
}

// appendSpan writes %l or, with used, %L: the rest of the time limit.
func (r *JobRow) appendSpan(b []byte, used int64) []byte {
	switch l := r.TimeLimitS(); {
	case l >= model.Unlimited:
		return append(b, "UNLIMITED"...)
	case l == model.NotSet:
		return append(b, "NOT_SET"...)
	default:
		return appendShort(b, l-used)
	}
}

// appendShort writes a span of seconds as walltime.Short does, without garbage where it is short.
func appendShort(b []byte, s int64) []byte {
	if s < 0 || s >= 3600 {
		return append(b, walltime.Short(s)...)
	}
	b = strconv.AppendInt(b, s/60, 10)
	return append(b, ':', byte('0'+s%60/10), byte('0'+s%10))
}

// MemMiB gives %m in MiB: the request per node or CPU, as the job or its partition says; 0: all of a node, or by GPU.
func (r *JobRow) MemMiB() int64 {
	perCPU, perNode := memoryOf(r.Job, r.askRules())
	return max(perCPU, perNode, 0)
}

// memoryOf gives the memory that a job asks for, MiB: per CPU or per node.
func memoryOf(j *model.Job, rules *model.AskRules) (perCPU, perNode int64) {
	perCPU, perNode = j.Memory()
	if perCPU == 0 && perNode == 0 && rules != nil && !ask.Of(j.Spec, rules).ByGPU {
		return rules.DefMemPerCPU, rules.DefMemPerNode
	}
	return perCPU, perNode
}

// appendMem writes MiB in the largest unit that keeps them whole, or as they are with --noconvert.
func appendMem(b []byte, mib int64, noConvert bool) []byte {
	if noConvert && mib > 0 {
		return append(strconv.AppendInt(b, mib, 10), 'M')
	}
	return append(b, walltime.FormatMem(mib)...)
}

// MinCPUs gives %c: CPUs per node at the least.
func (r *JobRow) MinCPUs() int64 {
	c := r.asks()
	return int64(minCPUs(&c))
}

// pendingS gives how long the job has been pending, seconds.
func (r *JobRow) pendingS() int64 {
	until := r.At
	if t := r.Begins(); t != 0 && r.State != model.Pending {
		until = t
	}
	return max(0, int64(until-r.Submit)/1000)
}

// outputs gives the output and error files; patterns are filled in with --expand-patterns only.
func (r *JobRow) outputs() (out, errFile string) {
	out, errFile = r.OutputFiles()
	if !r.Expand {
		if r.Spec.StdOut != "" {
			out = r.inWorkDir(r.Spec.StdOut)
		}
		if errFile = out; r.Spec.StdErr != "" {
			errFile = r.inWorkDir(r.Spec.StdErr)
		}
	}
	return out, errFile
}

// inWorkDir gives the whole name of a file of the job's.
func (r *JobRow) inWorkDir(name string) string {
	if strings.HasPrefix(name, "/") || r.Spec.WorkDir == "" {
		return name
	}
	return r.Spec.WorkDir + "/" + name
}

// gres gives what the job asked for per node, job or task: gres:gpu:a100:2.
func (r *JobRow) gres(per model.GresPer) string { return orNA(strings.Join(tresPer(r.Spec, per), ",")) }

func (r *JobRow) exitStatus() int64 {
	if x := r.LastExit(); x != nil {
		return int64(x.Status())
	}
	return 0
}

func (r *JobRow) derivedStatus() int64 {
	if x := r.LastExit(); x != nil {
		return int64(x.Worst)
	}
	return 0
}
