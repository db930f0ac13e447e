package migrate

import (
	"fmt"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// rowID is what a row's JobID and JobIDRaw say.
type rowID struct {
	raw   string // without the step
	job   model.JobID
	array model.JobID // 0: none
	task  int32
	tasks string // of an array's own record
	het   *model.Het
	step  string // "": the job itself
}

// id reads the numbers of the present row.
func (h *History) id() (id rowID, ok bool) {
	id.task = model.NoTask
	name, raw := h.get("jobid"), h.get("jobidraw")
	if raw == "" {
		raw = name
	}
	raw, id.step, _ = strings.Cut(raw, ".")
	name, _, _ = strings.Cut(name, ".")
	number := func(text string) (model.JobID, bool) {
		n, err := strconv.ParseUint(text, 10, 32)
		return model.JobID(n), err == nil && n > 0
	}
	if base, tasks, is := strings.Cut(name, "_"); is {
		if id.array, ok = number(base); !ok {
			return id, false
		}
		if list, whole := strings.CutPrefix(tasks, "["); whole {
			id.tasks = strings.TrimSuffix(list, "]")
		} else {
			n, err := strconv.ParseInt(tasks, 10, 32)
			if err != nil || n < 0 {
				return id, false
			}
			id.task = int32(n)
		}
	} else if base, offset, is := strings.Cut(name, "+"); is {
		first, ok := number(base)
		n, err := strconv.ParseUint(offset, 10, 16)
		if !ok || err != nil {
			return id, false
		}
		id.het = &model.Het{ID: first, Offset: int32(n), Size: int32(n) + 1}
		if raw == name { // no JobIDRaw: components have the numbers after the first
			raw = strconv.FormatUint(uint64(first)+n, 10)
		}
	}
	if id.raw = raw; id.tasks != "" && strings.Contains(raw, "_") {
		id.job = id.array
		return id, true
	}
	id.job, ok = number(raw)
	return id, ok
}

// record makes the record of the present row; nil if it is passed over.
func (h *History) record() (*model.Record, error) {
	id, ok := h.id()
	if !ok {
		if _, _, task := strings.Cut(h.get("jobid"), "_"); task && !h.has("jobidraw") {
			return nil, fmt.Errorf("the task %.40q of an array without JobIDRaw: add JobIDRaw to sacct's -o", h.get("jobid"))
		}
		return nil, fmt.Errorf("%.40q is no number of a job", h.get("jobid"))
	}
	if c := h.get("cluster"); c != "" {
		if h.Cluster == "" {
			h.Cluster = c
		}
		if c != h.Cluster {
			return nil, fmt.Errorf("the cluster is %.40q, and %q before: dump one cluster at a time, sacct -M %s", c,
				h.Cluster, h.Cluster)
		}
	}
	if id.step != "" {
		return h.step(id)
	}
	h.job, h.raw, h.skipped = nil, id.raw, true
	r, err := h.jobRecord(id)
	if err != nil {
		return nil, err
	}
	if !r.State.Finished() || r.End == 0 {
		h.Counts.Unfinished++
		return nil, nil
	}
	h.job, h.skipped = r, false
	h.Counts.Jobs++
	return r, nil
}

// jobRecord makes the record of a job.
func (h *History) jobRecord(id rowID) (*model.Record, error) {
	r := &model.Record{Cluster: h.o.Cluster, Job: id.job, ArrayID: id.array, Task: id.task, TaskText: id.tasks,
		Het: id.het, Name: h.get("jobname"), Group: h.get("group"), Account: h.get("account"), QOS: h.get("qos"),
		Partition: h.get("partition"), WorkDir: h.get("workdir"), SubmitLine: h.get("submitline"),
		Comment: h.get("comment"), AdminComment: h.get("admincomment"), StdOut: h.get("stdout"), StdErr: h.get("stderr"),
		StdIn: h.get("stdin"), Constraints: h.get("constraints"), Reservation: h.get("reservation"),
		FailedNode: h.get("failednode"), Reason: h.reason[h.get("reason")],
		WCKey:    h.get("wckey"),
		NoScript: true, // its batch step has a row of its own
	}
	id32, err := h.number("WCKeyID", 1<<32-1)
	if err != nil {
		return nil, err
	}
	r.WCKeyID = uint32(id32) // Slurm's; it only says that usage is kept by the key
	bad := func(column string) error { return fmt.Errorf("%s is %.60q", column, h.get(strings.ToLower(column))) }
	var ok bool
	if r.State, r.CancelUID, ok = state(h.get("state")); !ok {
		return nil, bad("State")
	}
	for _, t := range []struct {
		column string
		to     *model.Time
	}{{"Submit", &r.Submit}, {"Eligible", &r.Eligible}, {"Start", &r.Start}, {"End", &r.End}} {
		if *t.to, ok = moment(h.get(strings.ToLower(t.column)), h.o.Zone); !ok {
			return nil, bad(t.column)
		}
	}
	if r.Submit == 0 {
		return nil, bad("Submit")
	}
	if r.Eligible == 0 && !h.has("eligible") {
		r.Eligible = r.Submit
	}
	if r.End != 0 && r.End < r.Start {
		return nil, fmt.Errorf("column End %s is before Start %s", h.get("end"), h.get("start"))
	}
	// Slurm keeps one record for a number and a time of submission.
	r.Attempt = uint32(max(1, r.Submit.Seconds()))
	if err := h.user(r); err != nil {
		return nil, err
	}
	if err := h.sizes(r); err != nil {
		return nil, err
	}
	if r.LimitS, err = h.limit(); err != nil {
		return nil, err
	}
	if r.Exit.Code, r.Exit.Signal, ok = exit(h.get("exitcode")); !ok {
		return nil, bad("ExitCode")
	}
	code, signal, ok := exit(h.get("derivedexitcode"))
	if !ok {
		return nil, bad("DerivedExitCode")
	}
	r.Exit.Worst = code<<8 | signal
	if err := h.cpuTime(&r.Exit); err != nil {
		return nil, err
	}
	if r.SuspendMS, ok = spanMS(h.get("suspended")); !ok {
		return nil, bad("Suspended")
	}
	priority, err := h.number("Priority", 1<<32-1)
	if err != nil {
		return nil, err
	}
	restarts, err := h.number("Restarts", 1<<31-1)
	r.Priority, r.Restarts = uint32(priority), uint32(restarts)
	return r, err
}

// number reads a whole number; nothing is 0.
func (h *History) number(column string, most uint64) (uint64, error) {
	text := h.get(strings.ToLower(column))
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || n > most {
		return 0, fmt.Errorf("%s is %.60q", column, text)
	}
	return n, nil
}

// user fills in whose job it was.
func (h *History) user(r *model.Record) error {
	r.User = h.get("user")
	gid, err := h.number("GID", 1<<32-1)
	if err != nil {
		return err
	}
	r.GID = uint32(gid)
	if text := h.get("uid"); text != "" {
		uid, err := h.number("UID", 1<<32-1)
		if err != nil {
			return err
		}
		if r.UID = uint32(uid); r.User == "" {
			r.User = text
		}
		return nil
	}
	uid, known := h.uids[r.User]
	if !known {
		found := false
		if h.o.UID != nil && r.User != "" {
			uid, found = h.o.UID(r.User)
		}
		if !found {
			uid = nobody
		}
		if len(h.uids) < maxUIDs {
			h.uids[r.User] = uid
		}
	}
	if r.UID = uid; uid == nobody {
		h.Counts.NoUser++
	}
	return nil
}

// nobody is the UID of users that are not known.
const nobody = 65534

// sizes fills in what the job asked for and held.
func (h *History) sizes(r *model.Record) error {
	asked, ok := readTRES(h.get("reqtres"))
	if !ok {
		return fmt.Errorf("ReqTRES is %.60q", h.get("reqtres"))
	}
	held, ok := readTRES(h.get("alloctres"))
	if !ok {
		return fmt.Errorf("AllocTRES is %.60q", h.get("alloctres"))
	}
	numbers := map[string]int32{}
	for _, c := range []string{"NNodes", "ReqCPUS", "AllocCPUS", "NCPUS"} {
		n, err := h.number(c, 1<<31-1)
		if err != nil {
			return err
		}
		numbers[c] = int32(n)
	}
	r.ReqGres, r.AllocGres = asked.Gres, held.Gres
	r.NumNodes = first(numbers["NNodes"], held.Nodes, asked.Nodes)
	r.ReqCPUs = first(numbers["ReqCPUS"], asked.CPUs)
	if r.Start != 0 {
		r.AllocCPUs = first(held.CPUs, numbers["AllocCPUS"], numbers["NCPUS"], r.ReqCPUs)
	}
	if n := h.get("nodelist"); n != "None assigned" && n != "Unknown" {
		r.Nodes = n
	}
	r.AllocMemMiB = held.MemMiB
	mem, per := asked.MemMiB, byte(0)
	if text := h.get("reqmem"); text != "" && mem == 0 {
		if last := text[len(text)-1]; last == 'c' || last == 'n' { // of Slurm before 21.08
			text, per = text[:len(text)-1], last
		}
		if mem, ok = size(text, 20, 20); !ok {
			return fmt.Errorf("ReqMem is %.60q", h.get("reqmem"))
		}
		switch per {
		case 'c':
			mem *= int64(max(1, r.ReqCPUs))
		case 'n':
			mem *= int64(max(1, r.NumNodes))
		}
	}
	r.ReqMemMiB = mem / int64(max(1, r.NumNodes))
	if asked.Given || held.Given || mem > 0 {
		r.Asked = &model.Asked{Nodes: first(asked.Nodes, r.NumNodes), MemMiB: mem, Bill: asked.Bill, Billed: held.Bill,
			Licenses: asked.Licenses, Held: held.Licenses}
		if !asked.Given {
			r.Asked.Bill = int64(r.ReqCPUs)
		}
		if !held.Given {
			r.Asked.Billed = int64(r.AllocCPUs)
		}
	}
	return nil
}

// first gives the first number that is not 0.
func first(list ...int32) int32 {
	for _, n := range list {
		if n != 0 {
			return n
		}
	}
	return 0
}

// limit reads the time limit, seconds.
func (h *History) limit() (int64, error) {
	raw, text := h.get("timelimitraw"), h.get("timelimit")
	switch {
	case raw == "UNLIMITED" || text == "UNLIMITED":
		return model.Unlimited, nil
	case raw == "Partition_Limit" || text == "Partition_Limit" || raw == "" && text == "":
		return model.NotSet, nil
	case raw != "":
		n, err := strconv.ParseInt(raw, 10, 64)
		if err != nil || n < 0 || n > maxSpanS/60 {
			return 0, fmt.Errorf("column TimelimitRaw is %.60q", raw)
		}
		return min(n*60, model.Unlimited), nil
	}
	ms, ok := spanMS(text)
	if !ok {
		return 0, fmt.Errorf("column Timelimit is %.60q", text)
	}
	return min(ms/1000, model.Unlimited), nil
}

// cpuTime reads the CPU time that was used.
func (h *History) cpuTime(e *model.Exit) error {
	user, ok1 := spanMS(h.get("usercpu"))
	sys, ok2 := spanMS(h.get("systemcpu"))
	all, ok3 := spanMS(h.get("totalcpu"))
	if !ok1 || !ok2 || !ok3 {
		return fmt.Errorf("UserCPU, SystemCPU, TotalCPU are %.30q, %.30q, %.30q", h.get("usercpu"), h.get("systemcpu"),
			h.get("totalcpu"))
	}
	if e.UserMS, e.SysMS = user, sys; h.has("totalcpu") && all > user+sys {
		e.UserMS = all - sys // rounding, or columns that the dump does not have
	}
	return nil
}

// steps are the steps that have names.
var steps = map[string]int32{"batch": proto.StepBatch, "extern": proto.StepExtern,
	"interactive": proto.StepInteractive}
