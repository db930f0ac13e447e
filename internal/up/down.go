package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"syscall"
	"time"

	"gbatch/internal/conf"
	"gbatch/noded/cgroup"
)

// Down takes the cluster in dir down: jobs, node daemons, controllers, accounting daemon. State stays for the next Up.
// bin is where gshim is, should one have to be started to end what a dead one has left.
func Down(ctx context.Context, dir, bin string, out io.Writer) error {
	say := func(format string, a ...any) { fmt.Fprintf(out, format+"\n", a...) }
	l, b, want, err := open(dir)
	if err != nil {
		return err
	}
	release, err := l.hold()
	if err != nil {
		return err
	}
	defer release()
	shims, err := launchers()
	if err != nil {
		return err
	}
	byRole := map[string][]*Member{}
	running, launching := 0, 0
	for i := range want {
		m := &want[i]
		byRole[m.Role] = append(byRole[m.Role], m)
		if m.runs() {
			running++
		}
		if m.Role == RoleNode {
			launching += len(shims[shimDir(m.Directory)])
		}
	}
	if running == 0 && launching == 0 {
		say("nothing of %s runs", l)
		return nil
	}
	endJobs(ctx, want, say)

	var errs []error
	errs = append(errs, end(byRole[RoleNode], nodePatience, say))
	errs = append(errs, endShims(ctx, byRole[RoleNode], bin, say))
	var groups []string
	for _, m := range byRole[RoleNode] {
		groups = append(groups, cgroup.Place(m.Name, m.Directory))
	}
	errs = append(errs, l.endLeftovers(groups, "", say))
	errs = append(errs, end(byRole[RoleController], ctldPatience, say), end(byRole[RoleAccounting], dbdPatience, say))
	for i := range want {
		want[i].process = process{}
	}
	b.Members = want
	errs = append(errs, l.writeBook(b))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	say("cluster %s is down: %s ended; its state stays in %s", b.Cluster, count(running, "daemon"), l)
	return nil
}

// endShims ends the nodes' launchers, and what still runs of jobs below them.
func endShims(ctx context.Context, list []*Member, bin string, say func(string, ...any)) error {
	var errs []error
	killed := 0
	for _, m := range list {
		if !exists(shimDir(m.Directory)) {
			continue
		}
		n, err := endShim(ctx, m.Directory, filepath.Join(bin, "gshim"))
		if err != nil {
			errs = append(errs, fmt.Errorf("the launcher of %s: %w", m.Name, err))
		}
		killed += n
	}
	if killed > 0 {
		say("killed the processes of %s", count(killed, "job"))
	}
	return errors.Join(errs...)
}

// open reads a cluster's book and finds its daemons. Where the configuration can't be read any more, the book's own
// list of daemons counts.
func open(dir string) (layout, *book, []Member, error) {
	o := Options{Dir: dir}
	if err := o.check(); err != nil {
		return "", nil, nil, err
	}
	if real, err := filepath.EvalSymlinks(o.Dir); err == nil {
		o.Dir = real
	}
	l := layout(o.Dir)
	b, err := l.readBook()
	if err != nil {
		return l, nil, nil, err
	}
	want := append([]Member(nil), b.Members...)
	if cfg, _ := conf.LoadFile(l.conf()); cfg != nil {
		want = l.members(cfg)
		for _, m := range b.Members { // those that the file names no longer may run all the same
			if !contains(want, &m) && m.runs() {
				want = append(want, m)
			}
		}
	}
	return l, b, want, l.find(b, want)
}

func contains(list []Member, m *Member) bool {
	for i := range list {
		if list[i].is(m) {
			return true
		}
	}
	return false
}

// end stops daemons: SIGTERM, and SIGKILL for those that are still there after the time given.
func end(list []*Member, limit time.Duration, say func(string, ...any)) error {
	var ps []process
	for _, m := range list {
		if !m.runs() {
			continue
		}
		if err := m.signal(syscall.SIGTERM); err != nil {
			return fmt.Errorf("end %s: %w", m, err)
		}
		ps = append(ps, m.process)
	}
	left := gone(ps, limit)
	for _, p := range left {
		for _, m := range list {
			if m.process == p {
				say("%s, process %d, didn't end within %v: killing it", m, p.PID, limit)
			}
		}
		if err := p.signal(syscall.SIGKILL); err != nil {
			return err
		}
	}
	const afterKill = 5 * time.Second
	if left = gone(left, afterKill); len(left) > 0 {
		return fmt.Errorf("process %d can't be killed; it hangs in the kernel", left[0].PID)
	}
	return nil
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
