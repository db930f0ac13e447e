package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/shim"
)

// A cluster that is taken down ends its jobs: nothing would watch them. While a controller leads, all nodes are first
// set DOWN for downReason, so that jobs get SIGTERM, are recorded as NODE_FAIL or go back into the queue, and none
// starts meanwhile; the next `up` resumes exactly those nodes. What is left after jobPatience is killed where it runs.
const (
	downReason  = "taken down by gbatch down"
	jobPatience = 5 * time.Second
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
		if m.Role == RoleNode && shims[shimDir(m.Directory)].runs() {
			launching++
		}
	}
	if running == 0 && launching == 0 {
		say("nothing of %s runs", l)
		return nil
	}
	endJobs(ctx, want, say)

	var errs []error
	errs = append(errs, end(byRole[RoleNode], nodePatience, say))
	killed := 0
	for _, m := range byRole[RoleNode] {
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
	errs = append(errs, end(byRole[RoleController], ctldPatience, say), end(byRole[RoleAccounting], dbdPatience, say))
	for i := range want {
		want[i].process = process{}
	}
	b.Members = want
	errs = append(errs, l.writeBook(b))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	say("%s of %s ended; its state stays in %s", count(running, "daemon"), b.Cluster, l)
	return nil
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

// endJobs says which jobs run and has the controller end them, as far as one leads.
func endJobs(ctx context.Context, list []Member, say func(string, ...any)) {
	jobs, err := liveJobs(ctx, list)
	if err != nil || len(jobs) == 0 {
		return // without a controller the launchers know what runs
	}
	say("ending %s: %s", count(len(jobs), "running job"), shownJobs(jobs))
	var names []string
	err = eachNode(ctx, list, func(n *proto.NodeInfo) {
		if n.Node.Admin == model.NodeUp {
			names = append(names, n.Node.Def.Name)
		}
	})
	if err == nil && len(names) > 0 {
		err = setNodes(ctx, list, names, "DOWN", downReason)
	}
	if err != nil {
		say("the controller can't end them (%v); they are killed", err)
		return
	}
	for deadline := time.Now().Add(jobPatience); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(askEvery) {
		if jobs, err = liveJobs(ctx, list); err != nil || len(jobs) == 0 {
			return
		}
	}
}

// resume undoes what endJobs did to the nodes.
func resume(ctx context.Context, list []Member, s *state) error {
	if len(s.parked) == 0 {
		return nil
	}
	return setNodes(ctx, list, s.parked, "RESUME", "")
}

func setNodes(ctx context.Context, list []Member, names []string, to, reason string) error {
	rq := &proto.UpdateNodeRequest{Names: names, Set: []model.KV{{Key: "State", Value: to}}}
	if reason != "" {
		rq.Set = append(rq.Set, model.KV{Key: "Reason", Value: reason})
	}
	return ask(ctx, list, proto.KindUpdateNode, rq, func([]byte) error { return nil })
}

func eachNode(ctx context.Context, list []Member, f func(*proto.NodeInfo)) error {
	return ask(ctx, list, proto.KindNodes, &proto.NodesRequest{}, func(body []byte) error {
		var c proto.NodesChunk
		if err := proto.Decode(body, &c); err != nil {
			return err
		}
		for _, n := range c.Nodes {
			f(n)
		}
		return nil
	})
}

// liveJobs lists the jobs that hold resources.
func liveJobs(ctx context.Context, list []Member) ([]*model.Job, error) {
	var out []*model.Job
	rq := &proto.JobsRequest{Filter: proto.JobFilter{States: []model.JobState{model.Configuring, model.Running, model.Completing}}}
	err := ask(ctx, list, proto.KindJobs, rq, func(body []byte) error {
		var c proto.JobsChunk
		if err := proto.Decode(body, &c); err != nil {
			return err
		}
		out = append(out, c.Jobs...)
		return nil
	})
	return out, err
}

const jobsNamed = 8

func shownJobs(jobs []*model.Job) string {
	var out []string
	for _, j := range jobs[:min(len(jobs), jobsNamed)] {
		out = append(out, fmt.Sprint(j.ID))
	}
	s := strings.Join(out, ", ")
	if more := len(jobs) - len(out); more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}

func count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// shimDir is where a node's launcher keeps its things.
func shimDir(spool string) string { return filepath.Join(spool, "gshim") }

// launchers finds every gshim that this user can see, by its directory.
func launchers() (map[string]process, error) {
	all, err := commands()
	if err != nil {
		return nil, err
	}
	out := map[string]process{}
	for p, argv := range all {
		if filepath.Base(argv[0]) == "gshim" {
			out[option(argv, "-dir")] = p
		}
	}
	return out, nil
}

// endShim kills every process that a node's launcher has started, and then ends the launcher; its journal keeps how
// they ended for the next gnoded. Where the launcher itself has died, a new one finds what it has left. killed is the
// number of launches that still ran.
func endShim(ctx context.Context, spool, binary string) (killed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, shimPatience)
	defer cancel()
	c, events, err := shim.Start(ctx, shim.Options{Dir: shimDir(spool), Binary: binary})
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }() // it has ended, or the error is told
	drained := make(chan struct{})
	go func() { // a client has to be read
		defer close(drained)
		for range c.Events() {
		}
	}()
	var errs []error
	for _, e := range events {
		if e.Done() {
			continue
		}
		n, err := c.Signal(ctx, e.Key, syscall.SIGKILL, shim.Tree)
		if n > 0 || err != nil {
			killed++
		}
		errs = append(errs, err)
	}
	errs = append(errs, shutDown(ctx, c))
	if err := errors.Join(errs...); err != nil {
		return killed, err
	}
	select {
	case <-drained:
	case <-ctx.Done():
	}
	return killed, nil
}

// shutDown ends a launcher, which refuses while it reaps what was killed.
func shutDown(ctx context.Context, c *shim.Client) error {
	for {
		err := c.Shutdown(ctx)
		if err == nil || errors.Is(err, shim.ErrGone) {
			return nil
		}
		select {
		case <-time.After(goneEvery):
		case <-ctx.Done():
			return err
		}
	}
}

// endIdleShim ends a launcher that has nothing to do, if there is one.
func endIdleShim(ctx context.Context, spool string) {
	c, _, err := shim.Connect(ctx, shimDir(spool))
	if err != nil {
		return // there is none
	}
	go func() { // ends with the connection
		for range c.Events() {
		}
	}()
	// It refuses when it has jobs, which is right; in any case it stays visible to status and down.
	_ = c.Shutdown(ctx)
	_ = c.Close() // as above
}
