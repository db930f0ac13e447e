package noded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/cgroup"
	"gbatch/noded/gpu"
	"gbatch/noded/hardware"
)

// doctor.go checks this node when the leader asks for it (gcontrol doctor): everything that only the node can see. The
// leader makes the other findings itself.

const (
	doctorTime = 4 * time.Second // for all of it; the leader waits a little longer
	doctorJobs = 32              // jobs whose device rules are tried
	doctorLook = 8               // device files and jobs that one sentence names
)

// findings are gathered in order.
type doctorNotes []proto.Finding

func (d *doctorNotes) add(about string, grade proto.Grade, fix, format string, args ...any) {
	*d = append(*d, proto.Finding{About: about, Grade: grade, Text: fmt.Sprintf(format, args...), Fix: fix})
}

// examine answers the leader's question.
func (n *Noded) examine(ask *proto.NodeAsk) *proto.NodeAnswer {
	ctx, cancel := context.WithTimeout(context.Background(), doctorTime)
	defer cancel()
	var d doctorNotes
	n.examineSelf(&d)
	n.examineGPUs(ctx, &d)
	n.examineDevices(ctx, &d, ask.Held)
	return &proto.NodeAnswer{ID: ask.ID, Findings: d, At: n.hostTime()}
}

func (n *Noded) examineSelf(d *doctorNotes) {
	if why := n.health.look(); why != "" {
		d.add("health", proto.GradeBad, "correct that on the node; it is checked again every few seconds", "%s", why)
	} else {
		d.add("health", proto.GradeOK, "", "spool and temporary directory are writable and have room")
	}
	if n.link.connected() {
		d.add("launcher", proto.GradeOK, "", "gshim answers")
	} else {
		d.add("launcher", proto.GradeBad, "see gnoded's log: it tries to start gshim every second",
			"gshim can't be reached: no job starts here")
	}
}

// examineGPUs asks the driver anew, and compares with what jobs are given.
func (n *Noded) examineGPUs(ctx context.Context, d *doctorNotes) {
	if n.inv.GPUs == nil {
		return
	}
	type answer struct {
		list []gpu.Device
		err  error
	}
	got := make(chan answer, 1)
	go func() { // it ends when the driver answers, or with the source's own time limit
		list, err := n.inv.GPUs.Devices()
		got <- answer{list, err}
	}()
	var a answer
	select {
	case a = <-got:
	case <-ctx.Done():
		a.err = fmt.Errorf("no answer in %v", doctorTime)
	}
	if a.err != nil {
		d.add("gpus", proto.GradeBad, "see dmesg and nvidia-smi on the node", "the GPUs can't be listed: %v", a.err)
		return
	}
	var wrong []string
	for i := range n.inv.Devices {
		was := &n.inv.Devices[i]
		k := slices.IndexFunc(a.list, func(now gpu.Device) bool { return sameGPU(was, &now) })
		switch {
		case k < 0:
			wrong = append(wrong, fmt.Sprintf("GPU %d (%s) is gone", was.Index, was.UUID))
		case a.list[k].Fault != "" && was.Fault == "":
			wrong = append(wrong, fmt.Sprintf("GPU %d (%s): %s", was.Index, was.UUID, a.list[k].Fault))
		case len(a.list[k].MIG) != len(was.MIG):
			wrong = append(wrong, fmt.Sprintf("GPU %d (%s) has %d instances, %d when gnoded started", was.Index, was.UUID,
				len(a.list[k].MIG), len(was.MIG)))
		}
	}
	if more := len(a.list) - len(n.inv.Devices); more > 0 {
		wrong = append(wrong, fmt.Sprintf("%d GPUs are new", more))
	}
	if round := n.gpus.Last(); round.Err != nil {
		wrong = append(wrong, fmt.Sprintf("no readings: %v", round.Err))
	}
	if len(wrong) > 0 {
		d.add("gpus", proto.GradeBad, "repair the hardware, then restart gnoded: it looks for GPUs when it starts",
			"%s", strings.Join(wrong, "; "))
		return
	}
	d.add("gpus", proto.GradeOK, "", "the driver lists the same %d GPUs as when gnoded started", len(a.list))
}

func sameGPU(a, b *gpu.Device) bool {
	if a.UUID != "" && b.UUID != "" {
		return a.UUID == b.UUID
	}
	return a.Index == b.Index
}

// tried is a device file that some job may not open, and the first unit that has it.
type tried struct {
	file  string
	dev   int // in the table of units
	name  string
	index int
}

// tryFiles gives one file for each device of the table.
func (n *Noded) tryFiles() []tried {
	var out []tried
	for _, u := range hardware.Units(n.opts.look(), n.inv) {
		for _, file := range u.Files {
			d, ok, err := hardware.DeviceOf(file)
			k := slices.Index(n.groups.units.Devs, d)
			if err != nil || !ok || k < 0 || slices.ContainsFunc(out, func(t tried) bool { return t.dev == k }) {
				continue
			}
			out = append(out, tried{file, k, u.Name, u.Index})
		}
	}
	return out
}

// examineDevices tests whether the kernel keeps jobs from other jobs' devices: in a test group, and in the groups of
// jobs.
func (n *Noded) examineDevices(ctx context.Context, d *doctorNotes, held []proto.HeldUnits) {
	g := n.groups
	switch {
	case !g.conf.ConstrainDevices:
		d.add("devices", proto.GradeNote, "write ConstrainDevices=yes into cgroup.conf",
			"ConstrainDevices is off: jobs can open the devices of others")
		return
	case !g.root.Can().Devices && len(g.units.Devs) > 0:
		d.add("devices", proto.GradeBad,
			"gnoded needs root and a devices controller, or cgroup v2: its log says what is missing",
			"ConstrainDevices=yes can't be enforced on this host: jobs can open each other's devices")
		return
	case len(g.units.Devs) == 0:
		d.add("devices", proto.GradeOK, "", "no resource of this node is a device file, so there is nothing to constrain")
		return
	}
	files := n.tryFiles()
	k := slices.IndexFunc(files, func(t tried) bool { return t.index >= 0 })
	if k < 0 {
		d.add("devices", proto.GradeNote, "", "none of this node's devices is for jobs")
		return
	}
	one := &files[k]
	mine := []model.GresAlloc{{Name: one.name, Index: model.Bits(nil).With(one.index)}}
	text := fmt.Sprintf("with %s:%d alone a process opens that, and the kernel denies it the other %d", one.name,
		one.index, len(files)-1)
	if len(files) == 1 {
		mine, text = nil, fmt.Sprintf("the kernel denies %s:%d to a process that does not have it", one.name, one.index)
	}
	if wrong, err := g.tryNew(ctx, mine, files); err != nil {
		d.add("devices", proto.GradeBad, "", "the test whether the kernel keeps jobs to their devices failed: %v", err)
		return
	} else if len(wrong) > 0 {
		d.add("devices", proto.GradeBad, "drain the node: ConstrainDevices is not enforced", "%s: not so: %s", text,
			clipList(wrong))
		return
	}
	looked := 0
	for i := range held[:min(len(held), doctorJobs)] {
		if ctx.Err() != nil {
			break
		}
		group, err := g.of(held[i].Attempt)
		if err != nil || group == nil {
			continue
		}
		wrong, ok, err := g.try(ctx, group, held[i].Gres, files)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it has just ended
		case err != nil:
			d.add("devices", proto.GradeNote, "", "the devices of job %d could not be tested: %v", held[i].Attempt.Job, err)
		case len(wrong) > 0:
			d.add("devices", proto.GradeBad, "requeue the job; drain the node if it happens again", "job %d: %s",
				held[i].Attempt.Job, clipList(wrong))
		case ok:
			looked++
		}
	}
	if len(held) > 0 {
		text += fmt.Sprintf("; %d of %d running jobs were tested: they open only their own devices", looked, len(held))
	}
	d.add("devices", proto.GradeOK, "", "%s", text)
}

func clipList(list []string) string {
	if more := len(list) - doctorLook; more > 0 {
		return strings.Join(list[:doctorLook], ", ") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(list, ", ")
}

// tryNew tests a group like that of a job with these units.
func (g *groups) tryNew(ctx context.Context, units []model.GresAlloc, files []tried) (wrong []string, err error) {
	rules := g.units.Rules(units)
	g.doctor.Lock()
	defer g.doctor.Unlock()
	group, err := g.root.Create(doctorGroup, cgroup.Limits{Devices: rules})
	if errors.Is(err, fs.ErrExist) { // of a gnoded that was killed
		if group, err = g.root.Load(doctorGroup); err == nil {
			err = group.Remove(ctx)
		}
		if err == nil {
			group, err = g.root.Create(doctorGroup, cgroup.Limits{Devices: rules})
		}
	}
	if err != nil {
		return nil, err
	}
	wrong, _, err = g.try(ctx, group, units, files)
	return wrong, errors.Join(err, group.Remove(ctx))
}

// doctorGroup is a group that no job has.
const doctorGroup = "doctor"

// try opens all devices in a group that holds these units, and says what is wrong. ok: the group has device rules.
func (g *groups) try(ctx context.Context, group *cgroup.Group, units []model.GresAlloc, files []tried) (wrong []string,
	ok bool, err error) {
	held := g.units.Held(units)
	paths := make([]string, len(files))
	for i := range files {
		paths[i] = files[i].file
	}
	denied, ok, err := group.TryDevices(ctx, paths)
	if err != nil || !ok && g.units.Rules(units) == nil {
		return nil, false, err
	}
	for i, f := range files {
		switch own := held[f.dev]; {
		case own && ok && denied[i]:
			wrong = append(wrong, "its own "+f.file+" is denied")
		case !own && (!ok || !denied[i]):
			wrong = append(wrong, f.file+" opens but belongs to others")
		}
	}
	return wrong, ok, nil
}
