package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"gbatch/internal/conf"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
)

// Cluster is one that runs, as far as Up has seen to it.
type Cluster struct {
	Dir      string
	Conf     string
	Members  []Member
	children []*child // started by this process
	out      io.Writer
}

// Up makes the cluster in o.Dir where there is none, and starts what is missing of it. It returns when the cluster
// takes jobs. If that fails, what it has started is ended again.
func Up(ctx context.Context, o Options) (_ *Cluster, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	begin := time.Now()
	say := func(format string, a ...any) { fmt.Fprintf(o.Out, format+"\n", a...) }
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	dir, err := filepath.EvalSymlinks(o.Dir) // command lines name one directory by one name
	if err != nil {
		return nil, err
	}
	l := layout(dir)
	release, err := l.hold()
	if err != nil {
		return nil, err
	}
	defer release()

	b, err := l.readBook()
	empty := !exists(l.at("state"))
	switch {
	case errors.Is(err, errNoCluster):
		if b, err = l.invent(&o); err != nil {
			return nil, err
		}
		if err := l.writeBook(b); err != nil {
			return nil, err
		}
		say("cluster %s, new in %s", b.Cluster, l)
	case err != nil:
		return nil, err
	default:
		if err := b.fits(&o, l); err != nil {
			return nil, err
		}
		if err := b.moved(l); err != nil {
			return nil, err
		}
		say("cluster %s in %s", b.Cluster, l)
	}
	if err := errors.Join(l.prepare(b), l.powerPrograms(b, o.Bin)); err != nil {
		return nil, fmt.Errorf("make the files of %s: %w", l, err)
	}
	cfg, problems := conf.LoadFile(l.conf())
	if cfg == nil {
		return nil, fmt.Errorf("the configuration has errors; nothing was started:\n%s", faults(problems))
	}
	want := l.members(cfg)
	if err := l.certificates(want); err != nil {
		return nil, err
	}
	if err := l.find(b, want); err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(want, func(m Member) bool { return m.runs() }); i >= 0 && empty {
		return nil, fmt.Errorf("%s, process %d, still runs for a cluster whose files in %s were removed; end it and the "+
			"others with 'gbatch down --dir %s', then try again",
			&want[i], want[i].PID, l, l)
	}
	if err := l.retire(b, want, say); err != nil {
		return nil, err
	}
	c := &Cluster{Dir: string(l), Conf: l.conf(), Members: want, out: o.Out}
	if err := c.startMissing(l, b, &o, say); err != nil {
		return nil, err
	}
	limit := o.Timeout
	if limit == 0 {
		limit = startPatience + time.Duration(len(want))*patiencePerNode
	}
	seen, warning, err := await(ctx, want, c.children, limit, say)
	if err != nil {
		c.giveUp()
		return nil, err
	}
	if warning != "" {
		say("the cluster takes jobs, but not all of it is there: %s", warning)
	}
	for _, name := range seen.strangers(want) {
		say("controller %s runs, but the cluster does not know it: gcontrol controllers add %s", name, name)
	}
	if len(c.children) > 0 {
		say("ready after %.2f s: %s", time.Since(begin).Seconds(), sizes(cfg))
		for _, note := range seen.notes {
			say("note: %s", note)
		}
	}
	return c, nil
}

// fits refuses options that describe another cluster than the one that is there.
func (b *book) fits(o *Options, l layout) error {
	if !o.describes() {
		return nil
	}
	r := &b.Made
	differs := o.Conf != r.Conf && o.Conf != "" || o.Controllers != 0 && o.Controllers != r.Controllers ||
		o.Gdbds != 0 && o.Gdbds != r.gdbds() ||
		o.Nodes+o.Cloud != 0 && (o.Nodes != r.Nodes || o.Cloud != r.Cloud || o.CPUs != 0 && o.CPUs != r.CPUs ||
			o.MemMiB != 0 && o.MemMiB != r.MemMiB ||
			o.GPUs != r.GPUs)
	if !differs {
		return nil
	}
	return fmt.Errorf("%s holds a cluster already, made with %s: change it in %s (then `gcontrol reconfigure`), give "+
		"the new one another directory with --dir, or remove the old one (gbatch down, then rm -r %s)",
		l, r, l.conf(), l)
}

// moved refuses a directory that was moved or copied, whose configuration still names the old place: its daemons would
// begin there anew, or write where another cluster's do.
func (b *book) moved(l layout) error {
	if len(b.Members) == 0 {
		return nil
	}
	old := filepath.Dir(filepath.Dir(b.Members[0].Log))
	text, err := os.ReadFile(l.conf())
	if old == string(l) || err != nil || !strings.Contains(string(text), old+"/") {
		return nil
	}
	return fmt.Errorf("the cluster in %s was moved or copied from %s, and its configuration still names that directory, "+
		"so its daemons would keep their files there: sed -i 's|%s|%s|g' %s, then try again",
		l, old, old, l, l.conf())
}

// String gives the options that make such a cluster.
func (r *recipe) String() string {
	var out []string
	add := func(format string, a ...any) { out = append(out, fmt.Sprintf(format, a...)) }
	switch {
	case r.Conf != "":
		add("--conf %s", r.Conf)
	case r.made():
		if r.Nodes > 0 {
			add("--nodes %d", r.Nodes)
		}
		if r.Cloud > 0 {
			add("--cloud %d", r.Cloud)
		}
		add("--cpus %d --mem %d", r.CPUs, r.MemMiB)
		if r.GPUs != "" {
			add("--gpus %s", r.GPUs)
		}
	default:
		add("this machine as its node")
	}
	add("--controllers %d", r.Controllers)
	if r.gdbds() > 1 {
		add("--gdbds %d", r.gdbds())
	}
	return strings.Join(out, " ")
}

// retire ends daemons that the configuration doesn't name any more.
func (l layout) retire(b *book, want []Member, say func(string, ...any)) error {
	for i := range b.Members {
		m := &b.Members[i]
		kept := false
		for j := range want {
			kept = kept || m.is(&want[j])
		}
		if kept || !m.runs() {
			continue
		}
		say("%s isn't in %s any more: ending it", m, l.conf())
		if err := end([]*Member{m}, nodePatience, say); err != nil {
			return err
		}
	}
	return nil
}

// startMissing starts every member that doesn't run, and writes down which processes they are.
func (c *Cluster) startMissing(l layout, b *book, o *Options, say func(string, ...any)) error {
	var missing []*Member
	var off []string
	for i := range c.Members {
		switch m := &c.Members[i]; {
		case m.Off():
			off = append(off, m.Name)
		case !m.runs():
			missing = append(missing, m)
		}
	}
	running := len(c.Members) - len(missing) - len(off)
	switch {
	case len(missing) == 0:
		say("all %d daemons run already", running)
	case running > 0:
		say("%d of %d daemons run already", running, running+len(missing))
	}
	nodes := 0
	for _, m := range missing {
		if m.Role == RoleNode {
			nodes++
		}
		if _, err := program(o.Bin, m.Role); err != nil {
			return err
		}
		if err := l.portFree(m); err != nil {
			return err
		}
	}
	if err := roomFor(nodes); err != nil {
		return err
	}
	for _, m := range missing {
		ch, err := l.start(m, o.Bin, b.Made.virtual())
		if err != nil {
			c.giveUp()
			return err
		}
		c.children = append(c.children, ch)
		if running > 0 || m.Role != RoleNode {
			say("started %s, process %d, %s", m, m.PID, m.Addresses[0])
		}
	}
	if running == 0 && nodes > 0 {
		say("started %s", count(nodes, "node daemon"))
	}
	if len(off) > 0 {
		say("powered down: %s", hostlist.Compress(off))
	}
	b.Members = c.Members
	if err := l.writeBook(b); err != nil {
		c.giveUp()
		return err
	}
	return nil
}

// giveUp ends what this process has started. The launcher of a node goes too, unless it has jobs from before.
func (c *Cluster) giveUp() {
	var list []*Member
	for _, ch := range c.children {
		list = append(list, ch.m)
	}
	// The error that led here is the one to tell; a process that stays shows up in `gbatch status`.
	_ = end(list, giveUpPatience, func(string, ...any) {})
	ctx, cancel := context.WithTimeout(context.Background(), giveUpPatience)
	defer cancel()
	for _, m := range list {
		if m.Role == RoleNode {
			endIdleShim(ctx, m.Directory)
		}
	}
}

// Stay waits until ctx ends, or until nothing of the cluster runs any more because somebody else took it down, which
// it reports. It says when a daemon has ended by itself.
func (c *Cluster) Stay(ctx context.Context) (down bool) {
	said := map[*Member]bool{}
	for {
		var dead []*Member
		running := 0
		for i := range c.Members {
			m := &c.Members[i]
			if c.refresh(m); m.runs() {
				said[m] = false
				running++
			} else if !m.Off() {
				dead = append(dead, m)
			}
		}
		if running == 0 {
			return true
		}
		// While another command works on the directory, daemons come and go because it wants so.
		if release, err := layout(c.Dir).tryHold(); err == nil {
			release()
			for _, m := range dead {
				if !said[m] {
					fmt.Fprintf(c.out, "%s has ended, see %s; `gbatch up --detach` starts it again\n", m, m.Log)
				}
				said[m] = true
			}
		}
		select {
		case <-time.After(stayEvery):
		case <-ctx.Done():
			return false
		}
	}
}

// refresh finds the process that a daemon is now: another `up` may have started it anew, and Power a node's.
func (c *Cluster) refresh(m *Member) {
	if m.runs() {
		return
	}
	b, err := layout(c.Dir).readBook()
	if err != nil {
		m.process = process{}
		return
	}
	for i := range b.Members {
		if b.Members[i].is(m) {
			m.process, m.Power = b.Members[i].process, b.Members[i].Power
		}
	}
}

// sizes says how big a cluster is.
func sizes(cfg *conf.Config) string {
	var nodes int
	var cpus, gpus int64
	for i := range cfg.Nodes {
		n := &cfg.Nodes[i]
		if n.State == model.FutureText {
			continue
		}
		nodes++
		cpus += n.CPUs
		for _, g := range n.Gres {
			if g.Name == model.GPUName {
				gpus += g.Count
			}
		}
	}
	return count(nodes, "node") + ", " + count(int(cpus), "CPU") + ", " + count(int(gpus), "GPU")
}
