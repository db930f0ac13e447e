package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"gbatch/internal/hostlist"
	"gbatch/noded/cgroup"
)

// power.go stands in for the machines' power supply, or for a cloud: ResumeProgram and SuspendProgram of a cluster that
// Up has made call Power. A machine that is switched on is a node's daemon that starts; one that is switched off is a
// daemon that ends, with its launcher and what still runs of jobs there.

// What Power has made of a node.
const (
	powerOn  = "on"
	powerOff = "off"
)

// powerPatience is how long Power waits for another `gbatch up` or `gbatch power`.
const powerPatience = time.Minute

// powers reports whether nodes are powered down and up by Power.
func (r *recipe) powers() bool { return r.Cloud > 0 || r.Powers }

// programOf is where the program lies that switches nodes on or off.
func (l layout) programOf(power string) string { return l.at("power-" + power) }

// powerPrograms makes them. They name the gbatch that brings the cluster up, which may be another one each time.
func (l layout) powerPrograms(b *book, bin string) error {
	if !b.Made.powers() {
		return nil
	}
	for _, power := range []string{powerOn, powerOff} {
		text := fmt.Sprintf("#!/bin/sh\n# Made by gbatch up: gctld calls it with the nodes' names as one host list.\n"+
			"exec %q power %s --dir %q \"$1\"\n", filepath.Join(bin, "gbatch"), power, string(l))
		if old, err := os.ReadFile(l.programOf(power)); err == nil && string(old) == text {
			continue
		}
		if err := write(l.programOf(power), []byte(text), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// powerText writes the lines of gbatch.conf that name these programs.
func (l layout) powerText(p func(string, ...any)) {
	p("# Nodes are switched off and on by these programs: here they end and start the nodes' daemons (gbatch power).")
	p("SuspendProgram=%s", quoted(l.programOf(powerOff)))
	p("ResumeProgram=%s", quoted(l.programOf(powerOn)))
}

// Power switches the nodes of a host list on, or off, in the cluster in dir. One that is so already stays as it is.
func Power(ctx context.Context, dir, bin, nodes string, on bool, out io.Writer) error {
	say := func(format string, a ...any) { fmt.Fprintf(out, format+"\n", a...) }
	l, _, _, err := open(dir)
	if err != nil {
		return err
	}
	release, err := l.holdWithin(powerPatience)
	if err != nil {
		return err
	}
	defer release()
	l, b, want, err := open(dir) // as it is now
	if err != nil {
		return err
	}
	names, err := hostlist.Expand(nodes)
	if err != nil {
		return err
	}
	var list []*Member
	for _, name := range names {
		i := slices.IndexFunc(want, func(m Member) bool { return m.Role == RoleNode && m.Name == name })
		if i < 0 {
			return fmt.Errorf("%s has no node %q; its nodes stand in %s", l, name, l.conf())
		}
		list = append(list, &want[i])
	}
	if on {
		err = l.switchOn(b, list, bin, say)
	} else {
		err = l.switchOff(ctx, list, bin, say)
	}
	b.Members = want
	return errors.Join(err, l.writeBook(b))
}

// switchOn starts the daemons of nodes that don't run.
func (l layout) switchOn(b *book, list []*Member, bin string, say func(string, ...any)) error {
	list = slices.DeleteFunc(list, func(m *Member) bool { return m.runs() })
	if err := roomFor(len(list)); err != nil {
		return err
	}
	for _, m := range list {
		if err := l.certificates([]Member{*m}); err != nil {
			return err
		}
		if _, err := l.start(m, bin, b.Made.virtual()); err != nil {
			return err
		}
		m.Power = powerOn
		say("%s is on, process %d", m.Name, m.PID)
	}
	return nil
}

// switchOff ends the daemons of nodes, and all else that runs there.
func (l layout) switchOff(ctx context.Context, list []*Member, bin string, say func(string, ...any)) error {
	errs := []error{end(list, nodePatience, say), endShims(ctx, list, bin, say)}
	for _, m := range list {
		errs = append(errs, l.endLeftovers([]string{cgroup.Place(m.Name, m.Directory)}, m.Name, say))
		if m.runs() {
			continue // it could not be ended, which is said
		}
		m.process, m.Power = process{}, powerOff
		say("%s is off", m.Name)
	}
	return errors.Join(errs...)
}
