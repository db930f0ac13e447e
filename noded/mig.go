package noded

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"gbatch/internal/jobenv"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/gpu"
	"gbatch/noded/gpuwatch"
	"gbatch/noded/hardware"
)

// mig.go divides GPUs into MIG instances on the leader's order (gcontrol mig apply), with the driver's own tool. It
// changes nothing in gnoded: until gnoded is restarted, jobs get the units that it found at its start.

const (
	migTool = 60 * time.Second                   // for one call of the tool
	migTime = (proto.MaxMIGS - 20) * time.Second // for all of it; the leader waits a little longer
	// its exit code where there is nothing to destroy: NVML_ERROR_NOT_FOUND
	migMissing = 6
)

// cutter is one division of GPUs.
type cutter struct {
	n       *Noded
	layout  string
	program string
	run     func(args ...string) (string, error)
}

// divide carries out the leader's order, and gives the resulting instances.
func (n *Noded) divide(ask *proto.MIGAsk) *proto.MIGDone {
	done := &proto.MIGDone{}
	if !n.cutting.TryLock() {
		done.Error = "GPUs of this node are being divided already; try again when that has ended"
		return done
	}
	defer n.cutting.Unlock()
	ctx, cancel := context.WithTimeout(n.ctx, migTime)
	defer cancel()
	err := proto.CheckMIGLayout(ask.Layout) // it becomes arguments of a program that root runs
	touched := map[string]bool{}
	if err == nil {
		err = n.cutAll(ctx, ask, touched)
	}
	if err != nil {
		done.Error = err.Error()
	}
	n.log.Info("GPUs were divided", "layout", ask.Layout, "changed", len(touched), "err", err)
	now, err := n.lookAgain()
	if err != nil {
		done.Error = strings.TrimPrefix(done.Error+"; the GPUs can't be listed now: "+err.Error(), "; ")
		return done
	}
	for i := range now.Devices {
		d := &now.Devices[i]
		if len(ask.UUIDs) > 0 && !slices.Contains(ask.UUIDs, d.UUID) {
			continue
		}
		s := proto.MIGState{Index: int32(d.Index), UUID: d.UUID, Type: d.Type, MemMiB: d.MemMiB, MIG: d.MIG != nil,
			Changed: touched[d.UUID], Profiles: profilesOf(d)}
		done.GPUs = append(done.GPUs, s)
	}
	done.Gres, done.Moved = hardware.GresText(now.Hw.Gres), movedUnits(n.inv.Units, now.Units)
	for i := range now.Units {
		if now.Units[i].Name == model.GPUName {
			done.Units++
		}
	}
	return done
}

// lookAgain finds the machine's present units, as gnoded -C does. It changes nothing in gnoded.
func (n *Noded) lookAgain() (*hardware.Inventory, error) {
	o := n.opts.look()
	o.AsIs = true
	inv, err := hardware.Take(n.machine, o)
	switch {
	case err != nil:
		return nil, err
	case len(inv.Devices) == 0 && inv.Hw.Problem != "":
		return nil, errors.New(inv.Hw.Problem)
	case len(inv.Devices) == 0:
		return nil, errors.New("the driver lists no GPUs, or isn't asked (AutoDetect in gres.conf)")
	}
	return inv, nil
}

func profilesOf(d *gpu.Device) []string {
	var out []string
	for i := range d.MIG {
		out = append(out, d.MIG[i].Profile)
	}
	return out
}

// movedUnits names the units that stay but get another number once the configuration has the new units.
func movedUnits(was, now []hardware.Found) []string {
	var out []string
	for i := range was {
		u := &was[i]
		k := slices.IndexFunc(now, func(x hardware.Found) bool { return x.UUID != "" && x.UUID == u.UUID })
		if k >= 0 && now[k].Index != u.Index && u.Index >= 0 {
			out = append(out, fmt.Sprintf("%s:%d becomes %s:%d", u.Name, u.Index, now[k].Name, now[k].Index))
		}
	}
	return out
}

// cutAll divides the GPUs one after the other, and ends with the first that fails. It checks all of them before it
// changes any.
func (n *Noded) cutAll(ctx context.Context, ask *proto.MIGAsk, touched map[string]bool) error {
	c := &cutter{n: n, layout: ask.Layout, program: n.configured().MIGProgram}
	c.run = func(args ...string) (string, error) { return n.runLocal(ctx, c.program, migTool, nil, args...) }
	inv, err := n.lookAgain()
	if err != nil {
		return fmt.Errorf("the GPUs can't be listed: %w", err)
	}
	uuids := ask.UUIDs
	if len(uuids) == 0 {
		for i := range inv.Devices {
			uuids = append(uuids, inv.Devices[i].UUID)
		}
	}
	resume, err := n.gpus.Pause(ctx)
	if err != nil {
		return fmt.Errorf("gnoded's monitor of the GPUs could not be stopped: %w", err)
	}
	defer resume()
	var list []*gpu.Device
	var wants [][]string // instances of each
	for _, id := range uuids {
		k := slices.IndexFunc(inv.Devices, func(d gpu.Device) bool { return d.UUID == id })
		if k < 0 || id == "" {
			return fmt.Errorf("GPU %q is not among those that the driver lists now", id)
		}
		d := &inv.Devices[k]
		if d.Fault != "" {
			return fmt.Errorf("GPU %d (%s) can't be used: %s", d.Index, d.UUID, d.Fault)
		}
		if u := n.inUse(id); u != "" {
			return fmt.Errorf("a job on this node has %s", u)
		}
		want, err := c.plan(d)
		if err != nil {
			return err
		}
		list, wants = append(list, d), append(wants, want)
	}
	for i, d := range list {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("GPU %d (%s) is unchanged: the time limit of %v is over; run gcontrol mig apply "+
				"again", d.Index, d.UUID, migTime)
		}
		changed, err := c.cut(d, wants[i])
		if changed {
			touched[d.UUID] = true
		}
		if err != nil {
			return fmt.Errorf("GPU %d (%s): %w", d.Index, d.UUID, err)
		}
	}
	return nil
}

// inUse names a unit of a GPU that a job here has, or "".
func (n *Noded) inUse(uuid string) string {
	for i := range n.inv.Units {
		u := &n.inv.Units[i]
		if u.Index >= 0 && (u.UUID == uuid || u.Parent == uuid) &&
			!n.sampler.free(jobenv.Unit{Resource: u.Name, Index: int(u.Index)}) {
			return fmt.Sprintf("%s:%d", u.Name, u.Index)
		}
	}
	return ""
}

// plan gives the instances that a GPU is to have. If its MIG mode is on, the driver lists its profiles.
func (c *cutter) plan(d *gpu.Device) ([]string, error) {
	var offered []string
	if d.MIG != nil && c.layout != "off" {
		if text, err := c.run("mig", "-i", d.UUID, "-lgip"); err == nil {
			offered = gpu.OfferedProfiles(text)
		}
	}
	return gpu.Layout(d, c.layout, offered)
}

// cut divides one GPU. Instances are destroyed and made in the order in which the tool needs it.
func (c *cutter) cut(d *gpu.Device, want []string) (changed bool, err error) {
	has := profilesOf(d)
	slices.Sort(has)
	if d.MIG == nil && len(want) == 0 || d.MIG != nil && len(want) > 0 &&
		slices.Equal(has, slices.Sorted(slices.Values(want))) {
		return false, nil
	}
	if d.MIG != nil {
		for _, what := range []string{"-dci", "-dgi"} {
			if err := c.do(migMissing, "mig", "-i", d.UUID, what); err != nil {
				return true, err
			}
		}
	}
	switch {
	case len(want) == 0:
		return true, c.do(0, "-i", d.UUID, "-mig", "0")
	case d.MIG == nil:
		said, err := c.run("-i", d.UUID, "-mig", "1")
		if err != nil {
			return false, c.failed(err, said, "-i", d.UUID, "-mig", "1")
		}
		// The mode may be pending until the GPU is reset: then the tool says so, ends with 0, and lists no profiles.
		offered, err := c.run("mig", "-i", d.UUID, "-lgip")
		if err != nil {
			return true, c.failed(err, strings.TrimSpace(said+"\n"+offered), "-i", d.UUID, "-mig", "1")
		}
		if want, err = gpu.Layout(d, c.layout, gpu.OfferedProfiles(offered)); err != nil {
			return true, err
		}
	}
	return true, c.do(0, "mig", "-i", d.UUID, "-cgi", strings.Join(want, ","), "-C")
}

// do runs the tool. good is an exit code that is as good as 0.
func (c *cutter) do(good int, args ...string) error {
	said, err := c.run(args...)
	var exit *exec.ExitError
	if err == nil || good != 0 && errors.As(err, &exit) && exit.ExitCode() == good {
		return nil
	}
	return c.failed(err, said, args...)
}

// failed makes an error with the command and its output.
func (c *cutter) failed(err error, said string, args ...string) error {
	return fmt.Errorf("%s %s: %s: %s", c.program, strings.Join(args, " "), strings.TrimPrefix(err.Error(), c.program+": "),
		orElse(gpuwatch.OneLine(said), "it said nothing"))
}
