package cgroup

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"
)

// programs.go keeps v2's device programs: one for each different list of rules, loaded once and attached to all groups
// with that list. A program stays in the kernel as long as a group has it, also after gnoded has closed it.

// maxPrograms is the number of programs that stay loaded; a node of 8 GPUs whose jobs get one GPU, a half or all has up
// to 15.
const maxPrograms = 64

type programs struct {
	mu     sync.Mutex
	loaded map[string]*ebpf.Program
	order  []string // the oldest first
}

// attach puts a policy on a v2 directory. It goes with the directory, and can't be changed before: all attached
// programs must allow.
func (p *programs) attach(d *Devices, dir string) error {
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", dir, err)
	}
	defer unix.Close(fd)
	p.mu.Lock() // so that no program is closed while it is attached
	defer p.mu.Unlock()
	prog, err := p.load(d)
	if err != nil {
		return fmt.Errorf("device program: %w", err)
	}
	err = link.RawAttachProgram(link.RawAttachProgramOptions{Target: fd, Program: prog, Attach: ebpf.AttachCGroupDevice,
		Flags: unix.BPF_F_ALLOW_MULTI})
	if err != nil {
		return fmt.Errorf("attach a device program to %s: %w", dir, err)
	}
	return nil
}

func (p *programs) load(d *Devices) (*ebpf.Program, error) {
	key := d.key()
	if prog := p.loaded[key]; prog != nil {
		return prog, nil
	}
	insts, license, err := cgroup2.DeviceFilter(d.program())
	if err != nil {
		return nil, err
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.CGroupDevice, Instructions: insts, License: license})
	if err != nil {
		return nil, err
	}
	if p.loaded == nil {
		p.loaded = map[string]*ebpf.Program{}
	}
	if len(p.order) >= maxPrograms {
		oldest := p.order[0]
		p.order = slices.Delete(p.order, 0, 1)
		if err := p.loaded[oldest].Close(); err != nil {
			return nil, errors.Join(err, prog.Close())
		}
		delete(p.loaded, oldest)
	}
	p.loaded[key] = prog
	p.order = append(p.order, key)
	return prog, nil
}

func (p *programs) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, prog := range p.loaded {
		errs = append(errs, prog.Close())
	}
	p.loaded, p.order = nil, nil
	return errors.Join(errs...)
}

// key is equal for policies that allow the same devices.
func (d *Devices) key() string {
	list, head := d.Allow, "allow"
	if d.Deny != nil {
		list, head = d.Deny, "deny"
	}
	names := make([]string, len(list))
	for i := range list {
		names[i] = list[i].String()
	}
	slices.Sort(names)
	return head + " " + strings.Join(slices.Compact(names), ",")
}
