package acct

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"
	"unicode"

	"gbatch/internal/cli/env"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/seff"
	"gbatch/internal/slurmjson"
	"gbatch/internal/walltime"
)

// gseff --user sums up a user's ended jobs by name: what they asked for, what they used, and what to ask for.

// habits is one call of gseff --user.
type habits struct {
	seffCall *seffCall
	user     string // "": yourself
	uid      uint32
	rq       proto.AcctRequest
	groups   seff.Groups
	cluster  string
}

// shownGroups is how many groups the text has.
const shownGroups = 20

// ask reads the options and the user's records.
func (h *habits) ask() error {
	s := h.seffCall
	h.uid = uint32(os.Getuid())
	if h.user != "" {
		uid, err := env.UIDOf(h.user)
		if err != nil {
			return fmt.Errorf("Invalid user id: %s", h.user)
		}
		h.uid = uid
	}
	h.rq.Users, h.rq.End = []uint32{h.uid}, model.Time(s.now.UnixMilli())
	h.rq.Start = model.Time(s.now.AddDate(0, -1, 0).UnixMilli())
	for _, one := range []struct {
		given string
		to    *model.Time
	}{{s.end, &h.rq.End}, {s.start, &h.rq.Start}} {
		if one.given == "" {
			continue
		}
		t, err := dateOf(one.given, s.now)
		if err != nil {
			return fmt.Errorf("Invalid time specification: %w", err)
		}
		if *one.to = t; s.start == "" { // a month until -E
			h.rq.Start = model.Time(time.UnixMilli(int64(t)).In(s.now.Location()).AddDate(0, -1, 0).UnixMilli())
		}
	}
	if h.rq.End < h.rq.Start {
		return fmt.Errorf("the end time is before the start time")
	}
	for _, state := range model.JobStates() {
		if state.Finished() {
			h.rq.States = append(h.rq.States, state)
		}
	}
	c, err := s.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Stream(proto.KindAcct, &h.rq, func(body []byte) error {
		var chunk proto.RecordsChunk
		if err := c.Decode(body, &chunk); err != nil {
			return err
		}
		if chunk.Note != "" {
			fmt.Fprintf(s.Stderr, "%s: %s\n", s.Program, chunk.Note)
		}
		for _, r := range chunk.Records {
			h.user, h.cluster = r.User, r.Cluster
			h.groups.Add(r)
		}
		return nil
	})
}

// name gives the user's name.
func (h *habits) name() string {
	if h.user != "" {
		return h.user
	}
	if u, err := user.LookupId(strconv.Itoa(int(h.uid))); err == nil {
		return u.Username
	}
	return strconv.Itoa(int(h.uid))
}

func (h *habits) tell() error {
	if err := h.ask(); err != nil {
		return err
	}
	if h.seffCall.json != "" {
		return h.writeJSON()
	}
	h.write()
	return nil
}

// hours writes seconds as hours.
func hours(s int64) string { return strconv.FormatFloat(float64(s)/3600, 'f', 1, 64) }

// heldText says how long GPUs and cores were held, and for how long of that they were idle.
func heldText(gpuS, readS, idleGPUS, coreS, idleCoreS int64) string {
	text := ""
	if gpuS > 0 {
		text = hours(gpuS) + " GPU hours"
		switch {
		case readS == 0:
			text += " (their use was not read)"
		case readS < gpuS:
			text += fmt.Sprintf(" (%s of %s that were read were idle)", hours(idleGPUS), hours(readS))
		default:
			text += fmt.Sprintf(" (%s were idle, %d%%)", hours(idleGPUS), percent(idleGPUS, gpuS))
		}
		text += ", "
	}
	return text + fmt.Sprintf("%s core hours (%s were idle, %d%%)", hours(coreS), hours(idleCoreS),
		percent(idleCoreS, coreS))
}

func percent(part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return (100*part + whole/2) / whole
}

func (h *habits) write() {
	out := h.seffCall.Stdout
	stamp := func(t model.Time) string { return h.seffCall.Stamp(t, "") }
	list := h.groups.List()
	fmt.Fprintf(out, "User: %s\nJobs that ended from %s to %s: %d\n", printable(h.name(), 60), stamp(h.rq.Start),
		stamp(h.rq.End), h.groups.Jobs)
	if len(list) == 0 {
		fmt.Fprintf(out, "No job that ran has ended in that time, or you may not see it (PrivateData).\n")
		return
	}
	var sum seff.Group
	for _, g := range list {
		sum.GPUS, sum.ReadGPUS, sum.IdleGPUS = sum.GPUS+g.GPUS, sum.ReadGPUS+g.ReadGPUS, sum.IdleGPUS+g.IdleGPUS
		sum.CoreS, sum.IdleCoreS = sum.CoreS+g.CoreS, sum.IdleCoreS+g.IdleCoreS
	}
	fmt.Fprintf(out, "They held %s\n", heldText(sum.GPUS, sum.ReadGPUS, sum.IdleGPUS, sum.CoreS, sum.IdleCoreS))
	for i, g := range list {
		if i == shownGroups {
			left := int64(0)
			for _, g := range list[i:] {
				left += g.Jobs
			}
			fmt.Fprintf(out, "\n%d further groups, %d jobs: --json has them all.\n", len(list)-i, left)
			break
		}
		h.writeGroup(g)
	}
}

// writeGroup writes a table of four columns and the advice.
func (h *habits) writeGroup(g *seff.Group) {
	out := h.seffCall.Stdout
	how := []string{fmt.Sprintf("%d jobs", g.Jobs)}
	if g.Jobs == 1 {
		how[0] = "1 job"
	}
	for _, c := range []struct {
		n    int64
		word string
	}{{g.Completed, "completed"}, {g.Failed, "failed"}, {g.Cancelled, "cancelled"}, {g.Timeout, "reached the limit"},
		{g.OutOfMemory, "out of memory"}} {
		if c.n > 0 && c.n < g.Jobs {
			how = append(how, fmt.Sprintf("%d %s", c.n, c.word))
		} else if c.n > 0 {
			how = append(how, "all "+c.word)
		}
	}
	in := ""
	if g.Partition != "" {
		in = " in " + printable(g.Partition, 20)
	}
	fmt.Fprintf(out, "\n%s%s: %s\n", printable(g.Name, 24), in, strings.Join(how, ", "))
	row := func(what, asked string, cells ...string) {
		fmt.Fprintf(out, "  %-16s %12s", what, asked)
		for _, c := range cells {
			fmt.Fprintf(out, " %12s", c)
		}
		fmt.Fprintln(out)
	}
	spread := func(what, asked string, s *seff.Spread, text func(v int64) string) {
		if s.Count() > 0 {
			row(what, asked, text(s.Within(50)), text(s.Within(90)), text(s.Max()))
		}
	}
	mem := func(mib int64) string {
		if mib == 0 {
			return "-"
		}
		return walltime.FormatRounded(mib)
	}
	row("", "asked", "p50", "p90", "max")
	limit := "-"
	if g.LimitS > 0 {
		limit = walltime.Elapsed(g.LimitS)
	}
	spread("Time", limit, &g.Elapsed, walltime.Elapsed)
	spread("Memory per node", mem(g.MemMiB), &g.MemKB, func(v int64) string { return mem((v + 1023) >> 10) })
	spread("CPUs busy", strconv.FormatInt(g.CPUs, 10), &g.Busy, seff.Cores)
	if g.GPUs > 0 {
		spread("GPUs busy", strconv.FormatInt(g.GPUs, 10), &g.GPUUtil, func(v int64) string { return fmt.Sprintf("%d%%", v) })
		spread("GPU memory", mem(g.GPUHas), &g.GPUMem, mem)
	}
	fmt.Fprintf(out, "  Held: %s\n", heldText(g.GPUS, g.ReadGPUS, g.IdleGPUS, g.CoreS, g.IdleCoreS))
	for _, tip := range g.Advice() {
		fmt.Fprintf(out, "  Ask for: %s\n", tip)
	}
}

// printable makes a name safe for a terminal and at most n characters long.
func printable(name string, n int) string {
	runes := []rune(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, name))
	if len(runes) > n {
		return string(runes[:n-3]) + "..."
	}
	return string(runes)
}

// writeJSON writes all groups; amounts are in the units that the names end in.
func (h *habits) writeJSON() error {
	s := h.seffCall
	j := slurmjson.New(s.ListOut(), s.json)
	j.Open("", '{')
	j.Str("user", h.name())
	j.Time("start", h.rq.Start)
	j.Time("end", h.rq.End)
	j.Num("jobs", h.groups.Jobs)
	j.Open("groups", '[')
	for _, g := range h.groups.List() {
		j.Open("", '{')
		j.Str("name", g.Name)
		j.Str("partition", g.Partition)
		for _, n := range []struct {
			name string
			v    int64
		}{{"jobs", g.Jobs}, {"completed", g.Completed}, {"failed", g.Failed}, {"cancelled", g.Cancelled},
			{"timeout", g.Timeout}, {"out_of_memory", g.OutOfMemory}, {"core_seconds", g.CoreS},
			{"idle_core_seconds", g.IdleCoreS}, {"gpu_seconds", g.GPUS}, {"read_gpu_seconds", g.ReadGPUS},
			{"idle_gpu_seconds", g.IdleGPUS}} {
			j.Num(n.name, n.v)
		}
		j.Open("asked", '{')
		j.Maybe("time_seconds", max(0, g.LimitS), g.LimitS > 0, g.LimitS <= 0)
		j.Num("nodes", g.Nodes)
		j.Num("cpus", g.CPUs)
		j.Num("memory_per_node_mib", g.MemMiB)
		j.Num("gpus", g.GPUs)
		j.Num("gpu_memory_mib", g.GPUHas)
		j.Close('}')
		j.Open("used", '{')
		for _, u := range []struct {
			name string
			s    *seff.Spread
		}{{"time_seconds", &g.Elapsed}, {"memory_per_node_kib", &g.MemKB}, {"cpus_busy_thousandths", &g.Busy},
			{"gpu_utilization_percent", &g.GPUUtil}, {"gpu_memory_mib", &g.GPUMem}} {
			j.Open(u.name, '{')
			j.Num("jobs", u.s.Count())
			j.Num("p50", u.s.Within(50))
			j.Num("p90", u.s.Within(90))
			j.Num("max", u.s.Max())
			j.Close('}')
		}
		j.Close('}')
		j.Words("advice", g.Advice()...)
		j.Close('}')
		j.Flush(false)
	}
	j.Close(']')
	if h.cluster == "" {
		var err error
		if h.cluster, err = s.Cluster(); err != nil {
			return err
		}
	}
	return s.JSONTail(j, h.cluster, model.Time(s.now.UnixMilli()))
}
