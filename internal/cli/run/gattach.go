package run

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/hostlist"
	"gbatch/internal/proto"
	"gbatch/internal/stepio"
)

// gattach.go is gattach (sattach): what the tasks of a running step write from now on, and input for them. The step's
// grun connects to it; guests.go is its part.

// attachWait is how long the step's command may take to connect.
const attachWait = 15 * time.Second

// attach holds the values of gattach's options.
type attach struct {
	*env.Env
	label   bool
	layout  bool
	quiet   bool
	verbose int
	filters [3]int64 // of input, output, error: a task, or -1

	pl  plumbing // for labels
	got [3]map[int32]*labeller
}

func (a *attach) options() []getopt.Option {
	filter := func(i int, name, what string) getopt.Option {
		return getopt.Option{Name: name, Arg: getopt.Required, Metavar: "n", Help: what,
			Set: getopt.Number(&a.filters[i], 0, proto.MaxStepTasks-1)}
	}
	return []getopt.Option{
		filter(0, "input-filter", "give the input to this task only (default: to all)"),
		filter(1, "output-filter", "print the standard output of this task only"),
		filter(2, "error-filter", "print the standard error of this task only"),
		{Name: "label", Short: 'l', Help: "put the task's number before each line", Set: getopt.Flag(&a.label)},
		{Name: "layout", Help: "print the nodes and tasks of the step, and end", Set: getopt.Flag(&a.layout)},
		{Name: "pty", Refused: "a terminal of your own in the job: grun --jobid=JOB --overlap --pty bash"},
		{Name: "quiet", Short: 'Q', Help: "print no notes", Set: getopt.Flag(&a.quiet)},
		{Name: "verbose", Short: 'v', Help: "print more", Set: getopt.Count(&a.verbose)},
	}
}

// Gattach attaches to a running step.
func Gattach(e *env.Env) int {
	a := &attach{Env: e, filters: [3]int64{-1, -1, -1}}
	help := getopt.HelpOptions('h')
	help[1].Short = 'u' // of --usage, as sattach has it
	p := getopt.New(getopt.Config{Program: e.Program, Options: append(a.options(), help...),
		Operands: "JOB.STEP", Brief: "[options] <jobid.stepid>",
		OperandValues: func([]string, string) getopt.Values {
			return getopt.Values{Kind: getopt.Jobs}
		},
		About: "Print what the tasks of a running step write from now on, and give them input. Ctrl-C ends gattach and " +
			"nothing else."})
	words, err := p.Parse(e.Args, e.Lookup)
	if err != nil {
		return e.Usage(p, err)
	}
	if len(words) != 1 {
		e.Errorf("name one running step, as in 12.0")
		fmt.Fprintf(e.Stderr, "Try \"%s --help\" for more information\n", e.Program)
		return e.Failed(1)
	}
	rc, err := a.run(words[0])
	if err != nil {
		e.Errorf("%s", env.Text(err))
		rc = e.Failed(1)
	}
	return rc
}

// run attaches to the step that a word names.
func (a *attach) run(word string) (rc int, err error) {
	refs, err := env.ParseStepRefs(word)
	if err != nil || len(refs) != 1 || refs[0].Step < 0 || refs[0].Job.Tasks != nil {
		return 1, fmt.Errorf("Failed to parse stepid from command line options: '%s'; write a running step, as in 12.0, "+
			"12_3.0 or 12+1.0", word)
	}
	r := &run{Env: a.Env, group: noGroup}
	r.job, _, _ = strings.Cut(word, ".")
	r.rq.Parent, r.rq.Attach = refs[0].Step, &proto.StepAttach{}
	if r.rq.RequestID, err = newRequest(); err != nil {
		return 1, err
	}
	rf := &remoteFiles{ln: -1}
	came := make(chan *stepio.Conn, 1)
	if !a.layout {
		if rf.key, err = stepio.NewKey(); err != nil {
			return 1, err
		}
		if rf.ln, rf.port, err = listenAny(); err != nil {
			return 1, fmt.Errorf("listen for the step's command: %w", err)
		}
		r.rq.Attach.IO = &proto.StepIO{Port: rf.port, Key: rf.key}
		go acceptEach(rf.ln, func(f *os.File) { a.welcome(f, rf.key, came) }) // it ends with this process
	}
	dir, node, err := r.find()
	if err != nil {
		return 1, err
	}
	c, err := r.dial(dir, node)
	if err != nil {
		return 1, err
	}
	if err := c.Send(proto.StepFrameRequest, &r.rq, nil); err != nil {
		return 1, err
	}
	ev, err := c.Read()
	switch {
	case err != nil:
		return 1, fmt.Errorf("node %s's daemon has hung up: %w", node, err)
	case ev.Kind != proto.StepCreated:
		return 1, errors.New(ev.Text)
	case a.layout:
		a.sayLayout(ev)
		return 0, nil
	}
	for i := range ev.Layout {
		a.pl.all += len(ev.Layout[i].Ranks)
	}
	select {
	case conn := <-came:
		if a.verbose > 0 {
			fmt.Fprintf(a.Stderr, "%s: attached to step %s of %d tasks\n", a.Program, word, a.pl.all)
		}
		return a.copyOut(conn)
	case <-time.After(attachWait):
		return 1, fmt.Errorf("the command of step %s does not connect: it has just ended, or has as many guests as it may "+
			"have, or can't reach this host", word)
	}
}

// welcome takes the connection of the step's command.
func (a *attach) welcome(f *os.File, key []byte, came chan<- *stepio.Conn) {
	if f.SetDeadline(time.Now().Add(remoteHello)) == nil {
		if c, _, err := stepio.Answer(f, key); err == nil && f.SetDeadline(time.Time{}) == nil {
			select {
			case came <- c:
				return
			default: // there is one
			}
		}
	}
	_ = f.Close() // a stranger
}

// sayLayout prints where the tasks are, in sattach's form.
func (a *attach) sayLayout(ev *proto.StepEvent) {
	tasks := 0
	var nodes []string
	for i := range ev.Layout {
		tasks += len(ev.Layout[i].Ranks)
		nodes = append(nodes, ev.Layout[i].Node)
	}
	fmt.Fprintf(a.Stdout, "Job step layout:\n\t%d tasks, %d nodes (%s)\n\n", tasks, len(nodes),
		hostlist.CompressInOrder(nodes))
	for i := range ev.Layout {
		n := &ev.Layout[i]
		fmt.Fprintf(a.Stdout, "\tNode %d (%s), %d task(s): ", i, n.Node, len(n.Ranks))
		for _, r := range n.Ranks {
			fmt.Fprintf(a.Stdout, "%d ", r)
		}
		fmt.Fprintln(a.Stdout)
	}
}

// copyOut prints what comes until the step has ended, and gives its exit code.
func (a *attach) copyOut(c *stepio.Conn) (int, error) {
	signal.Ignore(unix.SIGTTIN) // in the background nothing is read
	go a.copyIn(c)              // it ends with this process
	mixed := false
	for {
		f, err := c.Read()
		if err != nil {
			a.flush()
			return 1, errors.New("the connection to the step's command is lost; the step may run on")
		}
		switch f.Stream {
		case 1, 2:
			if f.Rank == stepio.AllRanks && a.pl.all > 1 && !mixed && (a.label || a.filters[1] >= 0 || a.filters[2] >= 0) {
				mixed = true
				a.note("the tasks write to one file by themselves: their lines can't be told apart")
			}
			a.print(int(f.Stream), f.Rank, f.Data)
		case guestNote:
			a.note(string(f.Data))
		case guestEnd:
			a.flush()
			return int(f.Rank), nil
		}
	}
}

func (a *attach) note(text string) {
	if !a.quiet {
		fmt.Fprintf(a.Stderr, "%s: note: %s\n", a.Program, text)
	}
}

// print writes a piece of a task's output.
func (a *attach) print(stream int, rank int32, data []byte) {
	if rank == stepio.AllRanks && a.pl.all == 1 {
		rank = 0
	}
	if want := a.filters[stream]; want >= 0 && rank != int32(want) && rank != stepio.AllRanks {
		return
	}
	if !a.label || rank == stepio.AllRanks {
		a.pl.put(stream, data)
		return
	}
	if a.got[stream] == nil {
		a.got[stream] = map[int32]*labeller{}
	}
	l := a.got[stream][rank]
	if l == nil {
		l = a.pl.labeller(int(rank), stream)
		a.got[stream][rank] = l
	}
	l.take(data, false)
}

// flush prints what is left of lines.
func (a *attach) flush() {
	for _, of := range a.got {
		for _, l := range of {
			l.take(nil, true)
		}
	}
}

// copyIn gives this process's input to the tasks.
func (a *attach) copyIn(c *stepio.Conn) {
	if !isOpen(0) || isNull(0) {
		return
	}
	rank := stepio.AllRanks
	if a.filters[0] >= 0 {
		rank = int32(a.filters[0])
	}
	buf := make([]byte, followBytes)
	for {
		n, err := unix.Read(0, buf)
		if err == unix.EINTR {
			continue
		}
		if n <= 0 || err != nil || c.Write(0, rank, buf[:n]) != nil {
			return // its end is not the end of the tasks' input
		}
	}
}
