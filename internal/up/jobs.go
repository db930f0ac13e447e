package up

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/shim"
)

// jobs.go ends what a cluster that is taken down still runs.

// A cluster that is taken down ends its jobs: nothing would watch them. While a controller leads, all nodes are first
// set DOWN for downReason, so that jobs get SIGTERM, are recorded as NODE_FAIL or go back into the queue, and none
// starts meanwhile; the next `up` resumes exactly those nodes. What is left after jobPatience is killed where it runs.
const (
	downReason  = "taken down by gbatch down"
	jobPatience = 5 * time.Second
	// killPatience is for what was killed to be reported.
	killPatience = 3 * time.Second
)

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
	if jobs = awaitNoJobs(ctx, list, jobPatience); len(jobs) == 0 {
		return
	}
	say("killing %s still running: %s", count(len(jobs), "job"), shownJobs(jobs))
	for i := range list {
		if m := &list[i]; m.Role == RoleNode {
			if _, err := killJobs(ctx, m.Directory); err != nil {
				say("the launcher of %s: %v", m.Name, err)
			}
		}
	}
	awaitNoJobs(ctx, list, killPatience)
}

// awaitNoJobs waits until no job holds resources, and gives those that still do after the time given.
func awaitNoJobs(ctx context.Context, list []Member, limit time.Duration) []*model.Job {
	for deadline := time.Now().Add(limit); ; time.Sleep(askEvery) {
		jobs, err := liveJobs(ctx, list)
		if err != nil || len(jobs) == 0 {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return jobs
		}
	}
}

// resume undoes what endJobs did to the nodes.
func resume(ctx context.Context, list []Member, s *state) error {
	if len(s.parked) == 0 {
		return nil
	}
	return setNodes(ctx, list, s.parked, "UNDRAIN", "") // RESUME refuses one that has come back meanwhile
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
	rq := &proto.JobsRequest{Filter: proto.JobFilter{States: []model.JobState{model.Configuring, model.Running,
		model.Suspended, model.Completing}}}
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

// shimDir is where a node's launcher keeps its things.
func shimDir(spool string) string { return filepath.Join(spool, "gshim") }

// launchers finds every gshim that this user can see, by its directory. One that is starting is two processes, and a
// process that it has forked for a job looks like it until it executes the job's program.
func launchers() (map[string][]process, error) {
	all, err := commands()
	if err != nil {
		return nil, err
	}
	out := map[string][]process{}
	for p, argv := range all {
		if filepath.Base(argv[0]) == "gshim" {
			dir := option(argv, "-dir")
			out[dir] = append(out[dir], p)
		}
	}
	return out, nil
}

// eldest gives the process of a list that is no child of another one of it; none for an empty list.
func eldest(list []process) process {
	for _, p := range list {
		parent := parentOf(p.PID)
		if !slices.ContainsFunc(list, func(q process) bool { return q.PID == parent }) {
			return p
		}
	}
	return process{}
}

// launcher is the connection to a node's gshim.
type launcher struct {
	*shim.Client
	live []shim.Key // that run
	over []shim.Key // that have ended, and may have left something
}

func newLauncher(c *shim.Client, events []shim.Event) *launcher {
	l := &launcher{Client: c}
	for _, e := range events {
		if e.Done() {
			l.over = append(l.over, e.Key)
		} else {
			l.live = append(l.live, e.Key)
		}
	}
	go func() { // a client has to be read; ends with the connection
		for range c.Events() {
		}
	}()
	return l
}

// kill ends every process that the launcher has started, and what those have left that have ended; killed is the number
// of launches of which something still ran.
func (l *launcher) kill(ctx context.Context) (killed int, err error) {
	var errs []error
	for _, key := range slices.Concat(l.live, l.over) {
		n, err := l.Signal(ctx, key, syscall.SIGKILL, shim.Tree)
		if n > 0 || err != nil {
			killed++
		}
		errs = append(errs, err)
	}
	return killed, errors.Join(errs...)
}

// killJobs kills what a node's launcher runs, and leaves the launcher to the node's daemon.
func killJobs(ctx context.Context, spool string) (killed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, shimPatience)
	defer cancel()
	c, events, err := shim.Connect(ctx, shimDir(spool))
	if errors.Is(err, shim.ErrNotRunning) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	l := newLauncher(c, events)
	killed, err = l.kill(ctx)
	return killed, errors.Join(err, l.Close())
}

// endShim kills every process that a node's launcher has started, and then ends the launcher; its journal keeps how
// they ended for the next gnoded. Where the launcher itself has died, a new one finds what it has left.
func endShim(ctx context.Context, spool, binary string) (killed int, err error) {
	ctx, cancel := context.WithTimeout(ctx, shimPatience)
	defer cancel()
	c, events, err := shim.Start(ctx, shim.Options{Dir: shimDir(spool), Binary: binary})
	if err != nil {
		return 0, err
	}
	l := newLauncher(c, events)
	self, _ := processOf(c.Info().PID)
	killed, err = l.kill(ctx)
	if err = errors.Join(err, l.shutDown(ctx)); err != nil {
		return killed, errors.Join(err, l.Close())
	}
	gone([]process{self}, shimPatience)
	_ = l.Close() // it has ended
	return killed, nil
}

// endIdleShim ends a launcher that has nothing to do, if there is one, also one that is only starting.
func endIdleShim(ctx context.Context, spool string) {
	for ctx.Err() == nil {
		c, events, err := shim.Connect(ctx, shimDir(spool))
		if err == nil {
			l := newLauncher(c, events)
			self, _ := processOf(c.Info().PID)
			if len(l.live) == 0 && l.Shutdown(ctx) == nil {
				gone([]process{self}, giveUpPatience)
			}
			_ = l.Close() // one that has jobs goes on, and is visible to status and down
			return
		}
		if all, err := launchers(); err != nil || len(all[shimDir(spool)]) == 0 {
			return
		}
		time.Sleep(goneEvery)
	}
}

// shutDown ends a launcher, which refuses while it reaps what was killed.
func (l *launcher) shutDown(ctx context.Context) error {
	for {
		err := l.Shutdown(ctx)
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
