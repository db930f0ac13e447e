package gpuwatch

import (
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/noded/gpu"
	"gbatch/noded/hardware"
)

// health.go makes the node's account of GPUs that jobs should not get: broken ones, and ones in use by processes of no
// job. The whole account is sent with each heartbeat and at once when it changes; the leader decides the consequences.

// The values of GpuForeignUsePolicy.
const (
	Avoid  = "avoid"  // no job gets it as long as it lasts
	drain  = "drain"  // out of service until an operator resumes it
	Ignore = "ignore" // handed out all the same
)

// maxTellText limits the text about one GPU, bytes.
const maxTellText = 200

// Health follows the readings. Its account is nil before the first: then nothing is known, good or bad.
type Health struct {
	gpus   map[string][]Unit // by keyOf: its unit, or its MIG instances'
	at     map[int]string    // keyOf by the driver's index
	Ours   func(pid int) bool
	Free   func(jobenv.Unit) bool                           // no job has the unit, or a share of it
	Broken func(g *gpu.Reading, units []Unit, fault string) // called for each new fault; must not wait
	log    *slog.Logger

	full  map[jobenv.Unit]bool // in use in the last round, by no named process and no job
	stays map[jobenv.Unit]bool // some of its memory was in use, however little

	mu     sync.Mutex
	policy string
	share  float64                   // of a GPU's memory, percent, from which foreign use counts
	faults map[string]model.UnitTell // by keyOf: the latest
	lost   map[string]string         // by keyOf: why the latest could not be mended
	tells  []model.UnitTell
	held   []model.GPUHeld // as last reported
	known  bool
	wake   chan struct{} // holds one: the account has changed
}

// Unit is a GPU, or the part of one, that jobs get.
type Unit struct {
	jobenv.Unit
	uuid string // of a MIG instance, or the GPU's
}

// keyOf names a GPU: by its UUID, or by its place in the driver's list if it is too broken to have one.
func keyOf(uuid string, index int) string {
	if uuid == "" {
		return fmt.Sprintf("#%d", index)
	}
	return uuid
}

func NewHealth(devices []gpu.Device, units []hardware.Unit, policy string, share float64,
	log *slog.Logger) *Health {
	h := &Health{gpus: map[string][]Unit{}, at: map[int]string{}, policy: policy, share: share, log: log,
		faults: map[string]model.UnitTell{}, lost: map[string]string{},
		wake: make(chan struct{}, 1)}
	for i := range devices {
		d := &devices[i]
		key := keyOf(d.UUID, d.Index)
		h.at[d.Index] = key
		for _, u := range units {
			if hardware.Detectable(u.Name) && u.Index >= 0 && (u.UUID != "" && u.UUID == d.UUID || u.Seen == d.Index+1 ||
				d.Path != "" && slices.Contains(u.Files, d.Path)) {
				h.gpus[key] = append(h.gpus[key], Unit{jobenv.Unit{Resource: u.Name, Index: u.Index}, u.UUID})
			}
		}
		if len(h.gpus[key]) == 0 && len(units) == 0 {
			h.gpus[key] = []Unit{{jobenv.Unit{Resource: model.GPUName, Index: d.Index}, d.UUID}}
		}
	}
	return h
}

// Begin reports the GPUs that were found broken at the start, before the first round, so that no job tries them until
// then.
func (h *Health) Begin(devices []gpu.Device, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range devices {
		d := &devices[i]
		if d.Fault == "" {
			continue
		}
		t := model.UnitTell{Kind: model.OutFault, Text: OneLine(d.Fault), Stamp: uint64(now.UnixMilli())}
		h.faults[keyOf(d.UUID, d.Index)] = t
		for _, u := range h.gpus[keyOf(d.UUID, d.Index)] {
			t.Name, t.Index = u.Resource, int32(u.Index)
			h.tells, h.known = append(h.tells, t), true
		}
	}
}

// Round evaluates one round of readings. It is the watcher's callback.
func (h *Health) Round(r Round) {
	if r.Err != nil {
		return // unknown: the account stays
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.full
	h.full = map[jobenv.Unit]bool{}
	stayed := h.stays
	h.stays = map[jobenv.Unit]bool{}
	own := h.instances(&r)
	var tells []model.UnitTell
	var held []model.GPUHeld
	for i := range r.Readings {
		g := &r.Readings[i]
		key := h.keyOf(g)
		units := h.gpus[key]
		if len(units) == 0 {
			continue // jobs don't get this GPU
		}
		if fault, kind := fatal(g); fault != "" {
			h.log.Error("a GPU has failed", "gpu", g.Index, "uuid", g.UUID, "fault", fault)
			if h.faults[key].Text != fault && h.Broken != nil {
				delete(h.lost, key) // of the fault before
				h.Broken(g, units, fault)
			}
			h.faults[key] = model.UnitTell{Kind: kind, Text: fault, Stamp: uint64(r.At.UnixMilli())}
		}
		for _, u := range units {
			say := func(t model.UnitTell) {
				t.Name, t.Index, t.Text = u.Resource, int32(u.Index), OneLine(t.Text)
				tells = append(tells, t)
			}
			if f, ok := h.faults[key]; ok {
				if why := h.lost[key]; why != "" {
					f.Kind, f.Text = model.OutLost, f.Text+"; "+why
				}
				say(f)
			}
			used := u.of(g, own)
			if mem := h.heldMiB(used, u.Unit, stayed[u.Unit]); u.Resource == model.GPUName && mem > 0 &&
				(u.uuid == "" || u.uuid == used.UUID) {
				held = append(held, model.GPUHeld{Index: int32(u.Index), MemMiB: mem})
			}
			who, again := h.foreign(used, u.Unit), before[u.Unit]
			if who == anonymous {
				if h.full[u.Unit] = true; !again {
					who = "" // what has just ended may leave memory behind for a moment
				} else {
					who = fmt.Sprintf("more than %g %% of its memory is in use, and no job has it", h.share)
				}
			}
			switch {
			case who == "":
			case h.policy == drain:
				say(model.UnitTell{Kind: model.OutFault, Text: who, Stamp: 1})
			default:
				say(model.UnitTell{Kind: model.OutInUse, Text: who})
			}
		}
	}
	slices.SortFunc(held, func(a, b model.GPUHeld) int { return int(a.Index - b.Index) })
	held = held[:min(len(held), model.MaxUnitTells)]
	if h.known && slices.Equal(tells, h.tells) && slices.Equal(held, h.held) {
		return
	}
	h.known, h.tells, h.held = true, tells[:min(len(tells), model.MaxUnitTells)], held
	select {
	case h.wake <- struct{}{}:
	default: // a signal is already pending
	}
}

// Lost is told that a GPU's fault could not be mended, and why; the next round reports it, if there has been no other
// fault since.
func (h *Health) Lost(g *gpu.Reading, fault, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if key := h.keyOf(g); h.faults[key].Text == fault {
		h.lost[key] = why
	}
}

// instances gives the readings of MIG instances by their UUIDs.
func (h *Health) instances(r *Round) map[string]*gpu.Reading {
	own := map[string]*gpu.Reading{}
	for i := range r.Readings {
		if g := &r.Readings[i]; len(h.gpus[g.UUID]) == 0 && g.MemUsedMiB >= 0 {
			own[g.UUID] = g
		}
	}
	return own
}

// keyOf gives the key of the GPU that a reading is of.
func (h *Health) keyOf(g *gpu.Reading) string {
	if g.UUID == "" {
		return h.at[g.Index]
	}
	return g.UUID
}

// of gives the reading of a unit: the GPU's or, where the driver has it, the instance's own.
func (u *Unit) of(g *gpu.Reading, own map[string]*gpu.Reading) *gpu.Reading {
	if u.uuid != g.UUID && own[u.uuid] != nil {
		return own[u.uuid]
	}
	return g
}

// Taken says who else has one of these units, "" if nobody has, or it doesn't matter here. A process must have a name:
// what a job has just left behind is nobody's.
func (h *Health) Taken(r Round, mine []jobenv.Unit) string {
	if h == nil || r.Err != nil {
		return ""
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	own := h.instances(&r)
	for i := range r.Readings {
		g := &r.Readings[i]
		for _, u := range h.gpus[h.keyOf(g)] {
			if !slices.Contains(mine, u.Unit) {
				continue
			}
			if who := h.foreign(u.of(g, own), u.Unit); who != "" && who != anonymous {
				return OneLine(fmt.Sprintf("%s:%d is %s", u.Resource, u.Index, who))
			}
		}
	}
	return ""
}

// heldMiB gives the memory of a GPU that processes of no job hold, in steps; the reported value stays while the reading
// differs from it by less than a step. If the driver names no processes, it is the memory in use while no job has the
// GPU, from the second round on: a process that has just ended may leave memory behind for a moment.
func (h *Health) heldMiB(g *gpu.Reading, unit jobenv.Unit, again bool) int64 {
	if h.policy == Ignore || g.Lost {
		return 0
	}
	mem := int64(0)
	for _, p := range g.Processes {
		if !h.Ours(p.PID) {
			mem += max(p.MemMiB, 0)
		}
	}
	if len(g.Processes) == 0 && g.MemUsedMiB > 0 && h.Free(unit) {
		if h.stays[unit] = true; again {
			mem = g.MemUsedMiB
		}
	}
	if mem < model.HeldStepMiB { // the driver's own part
		mem = 0
	}
	k := slices.IndexFunc(h.held, func(x model.GPUHeld) bool { return int(x.Index) == unit.Index })
	if k >= 0 && mem > 0 && mem <= h.held[k].MemMiB && mem > h.held[k].MemMiB-2*model.HeldStepMiB {
		return h.held[k].MemMiB
	}
	return (mem + model.HeldStepMiB - 1) / model.HeldStepMiB * model.HeldStepMiB
}

// Account gives the units that jobs should not get and the memory that they can't have; known tells whether the GPUs
// have been read.
func (h *Health) Account() (tells []model.UnitTell, held []model.GPUHeld, known bool) {
	if h == nil {
		return nil, nil, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.tells, h.held, h.known
}

// Changed is signalled when the account changes; nil, so never, on nodes without GPUs.
func (h *Health) Changed() <-chan struct{} {
	if h == nil {
		return nil
	}
	return h.wake
}

// fatal gives the text of the fault that makes a GPU unusable, or "", and whether running work may go on
// (model.OutSpent).
func fatal(g *gpu.Reading) (text string, kind model.OutKind) {
	for i := len(g.Faults) - 1; i >= 0; i-- {
		f := &g.Faults[i]
		switch {
		case f.Fatal:
			return faultText(f), model.OutFault
		case f.Kind == gpu.FaultRecovery: // the driver asks for a reset after the running work
			text, kind = faultText(f), model.OutSpent
		}
	}
	return text, kind
}

func faultText(f *gpu.Fault) string {
	what := strings.ToUpper(f.Kind)
	if f.Kind == gpu.FaultXID {
		what = fmt.Sprintf("XID %d", f.Code)
	}
	switch {
	case f.Text == "":
		return what
	case f.Kind == gpu.FaultXID || f.Kind == gpu.FaultECC:
		return what + ": " + f.Text
	}
	return f.Text
}

// anonymous stands for processes that the driver doesn't name.
const anonymous = "?"

// foreign names the processes of no job that use a GPU, or "". If the driver names no processes, memory in use counts
// while no job has the GPU. The text is the same from round to round as long as the same process is there.
func (h *Health) foreign(g *gpu.Reading, unit jobenv.Unit) string {
	if h.policy == Ignore || g.Lost {
		return ""
	}
	pid, mem, unknown := 0, int64(0), false
	for _, p := range g.Processes {
		if h.Ours(p.PID) {
			continue
		}
		if pid == 0 || p.PID < pid {
			pid = p.PID
		}
		mem += max(p.MemMiB, 0)
		unknown = unknown || p.MemMiB < 0
	}
	if pid != 0 && (unknown || enough(mem, g.MemTotalMiB, h.share)) {
		return "in use by " + describe(pid) + ", which no job started"
	}
	if len(g.Processes) == 0 && enough(g.MemUsedMiB, g.MemTotalMiB, h.share) && h.Free(unit) {
		return anonymous
	}
	return ""
}

// enough reports whether used is that share of all, percent.
func enough(used, all int64, share float64) bool {
	return used > 0 && all > 0 && float64(used)*100 >= share*float64(all)
}

// describe names a process for people.
func describe(pid int) string {
	dir := "/proc/" + strconv.Itoa(pid)
	name, err := os.ReadFile(dir + "/comm")
	if err != nil {
		return fmt.Sprintf("process %d", pid)
	}
	text := strings.TrimSpace(string(name))
	if owner, err := user.LookupId(uidOf(dir)); err == nil {
		text += ", user " + owner.Username
	}
	return fmt.Sprintf("process %d (%s)", pid, text)
}

func uidOf(dir string) string {
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "Uid:" {
			return f[1]
		}
	}
	return ""
}

// OneLine makes a text fit for the account.
func OneLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
	if len(s) > maxTellText {
		return s[:maxTellText] + "..."
	}
	return s
}

// Follow applies the configuration of foreign use. It holds from the next round.
func (h *Health) Follow(policy string, share float64) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.policy, h.share = policy, share
}
