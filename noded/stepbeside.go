package noded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/model"
	"gbatch/internal/pmi"
	"gbatch/internal/proto"
	"gbatch/internal/stepio"
	"gbatch/internal/terminal"
	"gbatch/noded/gpuoom"
	"gbatch/noded/shim"
	"gbatch/noded/steppmi"
	"gbatch/noded/steppmix"
	"gbatch/noded/steprelay"
	"gbatch/noded/stepx11"
	"gbatch/noded/taskenv"
)

// stepbeside.go has the processes beside a step's tasks, which run as their user and in their group: relays of input
// and output to another host, listeners to output to this one, and those that serve MPI programs and displays.

// The task numbers under which gshim knows these processes, and that count up: relays, listeners, those that serve MPI
// programs, and those that have the tasks' display.
const (
	relayTask  = 1 << 30
	listenTask = relayTask + 1<<28
	pmiTask    = relayTask + 1<<29
	x11Task    = pmiTask + 1<<28
)

// relayed is one relay of a step.
type relayed struct {
	order *shim.Launch
	began bool
	ended bool
}

// makeBeside makes what is beside a step's tasks: files that they share, and processes.
func (n *Noded) makeBeside(p *stepPlan, orders []*shim.Launch) error {
	for _, path := range p.fresh {
		if err := n.makeFileAs(p.facts.Spec, p.req.Umask, path); err != nil {
			return fmt.Errorf("could not open stdout file: %w", err)
		}
	}
	if len(p.ends) > 0 {
		if err := p.tellEnds(orders); err != nil {
			return err
		}
		if err := n.makeRelay(p, orders[0]); err != nil {
			return err
		}
	}
	if len(p.heard) > 0 {
		if err := n.makeListener(p, orders); err != nil {
			return err
		}
	}
	if len(p.mpi) > 0 {
		if err := n.makePMI(p, orders[0]); err != nil {
			return err
		}
	}
	return n.serveDisplay(p, orders[0])
}

// onRelay handles gshim's event of a relay.
func (l *loop) onRelay(ev *shim.Event) {
	key := ev.Key
	if ev.Done() {
		l.then(func() { l.n.link.ack(key) })
	}
	s := l.step(keyOf(key), key.Step)
	if s == nil {
		return
	}
	var r *relayed
	for _, o := range s.relays {
		if o.order == nil || o.order.Key == key {
			r = o
		}
	}
	if r == nil { // of before this daemon's start
		r = &relayed{order: &shim.Launch{Key: key}}
		s.relays = append(s.relays, r)
	}
	r.began = true
	if !ev.Done() || r.ended {
		return
	}
	r.ended = true
	if said := gpuoom.OfCode(ev.Code); said != "" && key.Task < pmiTask {
		s.gpuSaid = said
	}
	if ev.Code == steprelay.ExitNoReach || ev.Kind == shim.LaunchFailed {
		why := "the node can't connect to the submit host; a firewall may be between them"
		what := "there is no input and output"
		switch {
		case key.Task >= x11Task:
			what = "there is no display (--x11)"
		case key.Task >= pmiTask:
			what = "MPI programs are not served (--mpi)"
		}
		if ev.Kind == shim.LaunchFailed {
			why = "the relay could not be started: " + ev.Text
		}
		s.send(l, &proto.StepEvent{Kind: proto.StepLine,
			Text: fmt.Sprintf("slurmstepd: error: StepId=%s on node %s: %s: %s", s.name(),
				l.n.opts.Name, what, why)})
		l.stopStep(s, model.StopCancel, s.job.rec.UID, false, "")
	}
	l.stepProgress(s)
}

// relaying reports whether relays may still have something to pass on. A display ends with the tasks. A reader of
// output may take its time, as it may with tasks that write to it themselves, until its step is killed.
func (s *step) relaying() bool {
	return slices.ContainsFunc(s.relays, func(r *relayed) bool {
		return !r.ended && r.order.Key.Task < x11Task && (!s.drained || s.rec.Waits && r.ofOutput() && s.phase < stepKilling)
	})
}

// ofOutput reports whether it passes output on.
func (r *relayed) ofOutput() bool { return r.order.Key.Task < pmiTask }

// relaysOver tells the processes that still pass output on that all tasks have ended. They know it, unless the gshim
// that tells them has been replaced meanwhile, or they are listeners beside a relay, which alone hears from gshim.
func (l *loop) relaysOver(s *step) {
	for _, r := range s.relays {
		if key := r.order.Key; !r.ended && r.ofOutput() {
			l.then(func() {
				l.n.stops.Do(func(ctx context.Context) { l.n.signalTask(ctx, key, steprelay.TasksOver, shim.Leader) })
			})
		}
	}
}

// pipes gives a task ends of pipes if the command is on another host, and keeps the other ends for the relay.
func (p *stepPlan) pipes(o *shim.Launch, stream, rank int) error {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil { // os.Pipe's don't block, which programs don't expect
		return fmt.Errorf("make a pipe for task %d: %w", rank, err)
	}
	own, other := fds[1], fds[0]
	if stream == 0 {
		own, other = fds[0], fds[1]
	}
	o.Passed[stream] = os.NewFile(uintptr(own), "a task's file")
	p.ends = append(p.ends,
		steprelay.Pipe{Rank: int32(rank), Stream: uint8(stream), File: os.NewFile(uintptr(other), "a relay's file")})
	return nil
}

// tellEnds makes gshim tell the relay how the tasks end, which can tell the command while this daemon is away.
func (p *stepPlan) tellEnds(orders []*shim.Launch) error {
	read, write, err := shim.EndPipe(len(orders))
	if err != nil {
		return fmt.Errorf("make a pipe for the tasks' ends: %w", err)
	}
	p.ends = append(p.ends, steprelay.Pipe{Rank: int32(len(orders)), Stream: stepio.Ended, File: read})
	for i, o := range orders {
		o.Passed[shim.ToldFile] = write[i]
	}
	return nil
}

// terminal gives a task a new terminal if the command is on another host; the relay gets the other side.
func (p *stepPlan) terminal(o *shim.Launch, rank int) error {
	t := p.req.Terminal
	master, slave, err := terminal.Open()
	if err != nil {
		return err
	}
	p.ends = append(p.ends, steprelay.Pipe{Rank: int32(rank), Stream: stepio.Terminal, File: master})
	o.Passed = [shim.PassedFiles]*os.File{slave, slave, slave}
	if err := slave.Chown(int(o.UID), -1); err != nil {
		return fmt.Errorf("give the user the terminal: %w", err)
	}
	fd := int(slave.Fd())
	if err := terminal.Resize(fd, terminal.Size{Rows: uint16(t.Rows), Cols: uint16(t.Cols)}); err != nil {
		return fmt.Errorf("set the terminal's size: %w", err)
	}
	if len(t.Modes) != 4 {
		return nil
	}
	if err := terminal.Set(fd,
		terminal.Modes{Input: t.Modes[0], Output: t.Modes[1], Control: t.Modes[2], Local: t.Modes[3],
			Chars: t.Chars}); err != nil {
		return fmt.Errorf("set the terminal's modes: %w", err)
	}
	return nil
}

// makeRelay makes the order for the relay of the tasks' pipes, which runs as their user and in their group.
func (n *Noded) makeRelay(p *stepPlan, like *shim.Launch) error {
	defer func() {
		for _, e := range p.ends {
			_ = e.File.Close() // the relay has its own
		}
	}()
	return n.beside(p, like, relayTask, []string{n.opts.Shim, steprelay.Word}, func(sock int) error {
		return steprelay.Send(sock, &steprelay.Order{Addr: net.JoinHostPort(p.io.Host, strconv.Itoa(int(p.io.Port))),
			Key: p.io.Key, Node: int32(p.here), Pipes: p.ends, GPU: hasGPU(p.rec.Nodes[p.here].Gres)})
	})
}

// heardPipe is a pipe that tasks write to in place of a pipe of their command, or of a file whose lines get labels.
type heardPipe struct {
	write *os.File
	is    os.FileInfo // of To, if it is the command's; nil: it is one task's
	steprelay.Heard
}

// heardPipe makes one for a task.
func (p *stepPlan) heardPipe(o *shim.Launch, stream int, to *os.File, is os.FileInfo, label string) error {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("make a pipe for task %d: %w", o.Key.Task, err)
	}
	h := heardPipe{os.NewFile(uintptr(fds[1]), "a task's file"), is,
		steprelay.Heard{From: os.NewFile(uintptr(fds[0]), "a relay's file"), To: to, Label: label}}
	p.heard = append(p.heard, h)
	o.Passed[stream] = h.write
	return nil
}

// labelled gives a task a pipe in place of a file, so that a process beside it puts the task's number before its lines.
// Both streams of a task may go to one file.
func (p *stepPlan) labelled(n *Noded, o *shim.Launch, stream, rank int) error {
	f := &p.files[stream]
	if out := &p.files[1]; stream == 2 && out.Mode == proto.FilePath && out.Label && out.Pattern == f.Pattern {
		o.Passed[2] = o.Passed[1]
		return nil
	}
	path := p.path(f.Pattern, rank)
	to, err := n.openFileAs(p.facts.Spec, p.req.Umask, path, unix.O_APPEND)
	if err != nil {
		return fmt.Errorf("could not open %s file: %w", [...]string{1: "stdout", 2: "stderr"}[stream], err)
	}
	if !f.Append {
		p.empty(path)
	}
	return p.heardPipe(o, stream, to, nil, stepio.LabelOf(int(p.het.First())+rank, p.tasksOfAll()))
}

// tasksOfAll is the number of tasks of all steps of the command.
func (p *stepPlan) tasksOfAll() (n int) {
	if p.het != nil {
		return int(p.het.Tasks)
	}
	for i := range p.rec.Nodes {
		n += len(p.rec.Nodes[i].Ranks)
	}
	return n
}

// hear gives a task a pipe in place of the command's pipe or socket, so that a process beside it hears what it says of
// its GPUs' memory. All that write to one of the command's pipes write to one pipe. Terminals stay theirs: programs ask
// these for more than to be written to.
func (p *stepPlan) hear(n *Noded, o *shim.Launch, stream int) error {
	to := o.Passed[stream]
	st, err := n.statWithin(p.facts.Spec.UID, to)
	if err != nil || st.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0 {
		return nil
	}
	for i := range p.heard {
		if is := p.heard[i].is; is != nil && os.SameFile(st, is) {
			o.Passed[stream] = p.heard[i].write
			return nil
		}
	}
	return p.heardPipe(o, stream, to, st, "")
}

// makeListener makes the order for the process that listens to the tasks' pipes. Beside a relay, which hears of the
// tasks' ends from gshim, it hears of them from gnoded.
func (n *Noded) makeListener(p *stepPlan, orders []*shim.Launch) error {
	told := orders
	if len(p.ends) > 0 {
		told = nil
	}
	read, write, err := shim.EndPipe(len(told))
	if err != nil {
		return fmt.Errorf("make a pipe for the tasks' ends: %w", err)
	}
	for i, o := range told {
		o.Passed[shim.ToldFile] = write[i]
	}
	list := make([]steprelay.Heard, 0, len(p.heard))
	defer func() {
		_ = read.Close() // the process has its own
		for _, h := range list {
			_ = h.From.Close() // likewise
			if h.Label != "" {
				closeAside([]*os.File{h.To}, func() {})
			}
		}
	}()
	for i := range p.heard {
		list = append(list, p.heard[i].Heard)
	}
	return n.beside(p, orders[0], listenTask, []string{n.opts.Shim, steprelay.ListenWord}, func(sock int) error {
		return steprelay.SendHeard(sock, read, len(told), hasGPU(p.rec.Nodes[p.here].Gres), list)
	})
}

// beside makes the order for a process beside a step's tasks, which runs as their user and in their group. tell writes
// on the socket that is its standard input, and first counts its number up.
func (n *Noded) beside(p *stepPlan, like *shim.Launch, first int32, argv []string, tell func(sock int) error) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	mine, its := os.NewFile(uintptr(pair[0]), "to a relay"), os.NewFile(uintptr(pair[1]), "of a relay")
	defer mine.Close() //nolint:errcheck // what was written stays for the relay
	if err := tell(pair[0]); err != nil {
		_ = its.Close() // err says why it is of no use
		return fmt.Errorf("tell a relay of its pipes: %w", err)
	}
	o := &shim.Launch{Key: like.Key, Path: argv[0], Argv: argv,
		Env: []string{"PATH=" + programPath},
		Dir: "/", UID: like.UID, GID: like.GID, Groups: like.Groups, Umask: 0o077, Nice: n.nice, Cgroup: like.Cgroup,
		Mounts: p.space, AsRoot: like.AsRoot}
	o.Key.Task = first + like.Key.Task
	o.Passed[0] = its
	p.relays = append(p.relays, o)
	return o.Check()
}

// notTheirs are variables by which an MPI program would find another launcher than this step.
var notTheirs = []string{"PMI_", "PMIX_", "HYDRA_", "HYDI_", "MPIEXEC_", "MPI_LOCAL"}

// theirs begins variables by which users set parameters of the library.
const theirs = "PMIX_MCA_"

// connectTask gives a task its connection, and the variables that lead to it.
func (p *stepPlan) connectTask(o *shim.Launch, rank int) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("connect task %d for MPI: %w", rank, err)
	}
	o.Passed[steppmi.FD] = os.NewFile(uintptr(pair[0]), "a task's file")
	p.mpi = append(p.mpi, os.NewFile(uintptr(pair[1]), "a relay's file"))
	o.Env = slices.DeleteFunc(o.Env, func(entry string) bool {
		return slices.ContainsFunc(notTheirs, func(prefix string) bool { return strings.HasPrefix(entry, prefix) }) &&
			(!p.pmi.PMIx || !strings.HasPrefix(entry, theirs))
	})
	job := p.pmiJob()
	if p.pmi.PMIx {
		if job.Mapping != "" {
			o.Env = append(o.Env, "SLURM_PMIX_MAPPING_SERV="+job.Mapping)
		}
		return nil // the server makes the others
	}
	o.Env = append(o.Env, "PMI_FD="+strconv.Itoa(steppmi.FD), "PMI_RANK="+strconv.Itoa(int(p.het.First())+rank),
		"PMI_SIZE="+strconv.Itoa(job.Size), "PMI_JOBID="+job.ID)
	return nil
}

// awaitVariables makes a task begin as a program that waits for the variables of its PMIx server.
func (n *Noded) awaitVariables(o *shim.Launch, p *stepPlan) error {
	if p.req.Container != nil {
		return errors.New("--mpi=pmix can't be had with --container: the libraries of the node and of the image would " +
			"have to fit; start the program with its own mpirun in the container, or a program of MPICH with --mpi=pmi2")
	}
	o.Argv = taskenv.Argv(n.opts.Shim, orElse(o.Path, o.Argv[0]), o.Argv)
	o.Path = n.opts.Shim
	return nil
}

// pmiJob is what the tasks are told of their step. Several steps of one command are one to MPI programs: the command's
// key names it, and each compares the names of hosts to see who is near.
func (p *stepPlan) pmiJob() pmi.Job {
	if h := p.het; h != nil {
		return pmi.Job{ID: fmt.Sprintf("%d.%x", h.Job, p.pmi.Key[:4]), Size: int(h.Tasks)}
	}
	size := 0
	for i := range p.rec.Nodes {
		size += len(p.rec.Nodes[i].Ranks)
	}
	nodes := make([]int, size)
	for i := range p.rec.Nodes {
		for _, r := range p.rec.Nodes[i].Ranks {
			if int(r) < size {
				nodes[r] = i
			}
		}
	}
	return pmi.Job{ID: fmt.Sprintf("%d.%d", p.rec.Job, p.rec.ID), Size: size, Mapping: pmi.Mapping(nodes)}
}

// makePMI makes the order for the process that serves the tasks.
func (n *Noded) makePMI(p *stepPlan, like *shim.Launch) error {
	defer func() {
		for _, f := range p.mpi {
			_ = f.Close() // the process has its own
		}
	}()
	order := &steppmi.Order{Addr: net.JoinHostPort(p.pmi.Host, strconv.Itoa(int(p.pmi.Port))), Key: p.pmi.Key,
		Node: int32(p.here), Job: p.pmiJob(), Files: p.mpi}
	for _, local := range p.only {
		order.Ranks = append(order.Ranks, p.het.First()+p.rec.Nodes[p.here].Ranks[local])
	}
	if !p.pmi.PMIx {
		return n.beside(p, like, pmiTask, []string{n.opts.Shim, steppmi.Word},
			func(sock int) error { return steppmi.Send(sock, order) })
	}
	program := orElse(n.opts.Importer, n.opts.Verdict)
	if program == "" {
		return fmt.Errorf("node %s can't serve --mpi=pmix: it does not know where gnoded is", n.opts.Name)
	}
	x := &steppmix.Order{Addr: order.Addr, Key: order.Key, Node: order.Node, Ranks: order.Ranks, Files: order.Files,
		Virtual: n.opts.Virtual}
	return n.beside(p, like, pmiTask, []string{program, steppmix.Word},
		func(sock int) error { return steppmix.Send(sock, x) })
}

// makeDisplay listens for the tasks' X clients, if the command gives the tasks of this node its display.
func (n *Noded) makeDisplay(p *stepPlan) (err error) {
	switch {
	case p.x11 == nil, p.x11.Nodes == proto.X11First && p.here > 0,
		p.x11.Nodes == proto.X11Last && p.here < len(p.rec.Nodes)-1:
		return nil
	case !n.configured().X11:
		return fmt.Errorf("node %s forwards no displays (--x11): PrologFlags in gbatch.conf has no X11", n.opts.Name)
	case p.req.Container != nil:
		return errors.New("a container has no display of its user's: leave --x11 out")
	}
	spec := p.facts.Spec
	p.shows, err = n.shows.Make(p.key, p.rec.ID, spec.UID, spec.GID, p.x11.Key)
	return err
}

// closeDisplay closes this daemon's end of the display: the process beside the tasks has its own, or there is none.
func (p *stepPlan) closeDisplay() {
	if p.shows != nil {
		_ = p.shows.Port.Close() // nobody listens here
	}
}

// show gives a task the step's display.
func (p *stepPlan) show(o *shim.Launch) {
	if p.shows == nil {
		return
	}
	o.Env = slices.DeleteFunc(o.Env, func(entry string) bool {
		return strings.HasPrefix(entry, "DISPLAY=") || strings.HasPrefix(entry, "XAUTHORITY=")
	})
	o.Env = append(o.Env, p.shows.Env...)
}

// serveDisplay makes the order for the process that takes the X clients' connections.
func (n *Noded) serveDisplay(p *stepPlan, like *shim.Launch) error {
	if p.shows == nil {
		return nil
	}
	order := &stepx11.Order{Addr: net.JoinHostPort(p.x11.Host, strconv.Itoa(int(p.x11.Port))), Key: p.x11.Key,
		Node: int32(p.here), Port: p.shows.Port}
	return n.beside(p, like, x11Task, []string{n.opts.Shim, stepx11.Word},
		func(sock int) error { return stepx11.Send(sock, order) })
}
