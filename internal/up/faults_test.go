package up

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gbatch/internal/client"
	"gbatch/internal/proto"
)

// faults_test.go takes the leader away in every way that is known, while jobs are submitted and run, and measures for
// how long users notice. Hosts and disks of their own need root (apart_test.go).

// stage is where faults happen.
type stage struct {
	t        *testing.T
	c        *Cluster
	a        *apart // nil without root: everything is on one host
	bin      string
	sockets  []string // of controllers, each in a directory of its own
	readAt   []string
	leader   string
	process  process
	duration time.Duration // of faults that have one
}

// fault is something that happens to the leader.
type fault struct {
	name   string
	hit    func(s *stage)
	mend   func(s *stage)   // nil: nothing is to mend
	apart  bool             // needs hosts and disks of their own
	lasts  bool             // for a stage's duration at least
	least  time.Duration    // it lasts for so long at least
	moves  bool             // another controller leads then
	late   bool             // or not while it lasts: the log still has room in its file
	all    bool             // users at the leader's own socket go on too
	strict bool             // no call fails
	told   bool             // the leader tells the nodes who leads next, also those whose reports are under way
	outage bool             // nothing can go on while it lasts
	alert  string           // what AlertProgram is told
	goal   [2]time.Duration // median and maximum
}

var (
	short  = [2]time.Duration{50 * time.Millisecond, 100 * time.Millisecond}
	killed = [2]time.Duration{1200 * time.Millisecond, 2500 * time.Millisecond}
	silent = [2]time.Duration{2 * time.Second, 4 * time.Second}
	disk   = [2]time.Duration{4 * time.Second, 6 * time.Second}
)

// none is the beginning of the names of rows without a fault.
const none = "none"

var faultsOfLeader = []fault{
	{name: none, hit: func(*stage) {}, all: true, strict: true},
	// The longest of many pauses is longer than that of a few: this is what a rolling upgrade compares with.
	{name: none + " for a while", hit: func(*stage) {}, lasts: true, all: true, strict: true},
	{name: "kill -9", hit: func(s *stage) { s.signal(syscall.SIGKILL) }, mend: (*stage).again, moves: true,
		goal: killed},
	{name: "SIGSTOP", hit: func(s *stage) { s.signal(syscall.SIGSTOP) },
		mend: func(s *stage) { s.signal(syscall.SIGCONT) }, lasts: true, moves: true, goal: silent},
	{name: "host off the network", hit: func(s *stage) { s.a.link(s.leader, "down") },
		mend: func(s *stage) { s.a.link(s.leader, "up") }, apart: true, lasts: true, moves: true, goal: silent},
	{name: "cut off from controllers", hit: func(s *stage) { s.a.split(s.leader, s.others()...) },
		mend: func(s *stage) { s.a.join(s.leader, s.others()...) }, apart: true, lasts: true, moves: true, goal: silent},
	// For longer than a request waits for a leader: that host's users go on too, though its controller can't follow.
	{name: "disk hangs", hit: func(s *stage) { s.a.freeze(s.leader) }, mend: func(s *stage) { s.a.thaw(s.leader) },
		apart: true, lasts: true, least: 14 * time.Second, moves: true, all: true, strict: true, goal: disk,
		alert: "disk_slow"},
	{name: "disk full", hit: func(s *stage) { s.a.fill(s.a.disk(s.leader)) },
		mend:  func(s *stage) { s.a.clear(s.a.disk(s.leader)) },
		apart: true, lasts: true, moves: true, late: true, all: true, strict: true, goal: disk,
		alert: "disk_full"},
	{name: "all disks full", hit: func(s *stage) { s.eachController(func(c string) { s.a.fill(s.a.disk(c)) }) },
		mend:  func(s *stage) { s.eachController(func(c string) { s.a.clear(s.a.disk(c)) }) },
		apart: true, lasts: true, all: true, outage: true},
	{name: "SIGTERM", hit: func(s *stage) { s.signal(syscall.SIGTERM) }, mend: (*stage).again, moves: true, strict: true,
		told: true, goal: short},
	{name: "takeover", hit: func(s *stage) { takeover(s.t, s.c, s.leader) }, moves: true, all: true, strict: true,
		told: true, goal: short},
	{name: "rolling upgrade", hit: (*stage).roll, all: true, strict: true, goal: short},
}

func (s *stage) signal(sig syscall.Signal) {
	s.t.Helper()
	p := s.process
	if err := p.signal(sig); err != nil {
		s.t.Fatal(err)
	}
	if sig == syscall.SIGSTOP {
		s.t.Cleanup(func() { _ = p.signal(syscall.SIGCONT) }) // it may have ended
	}
}

// send sends a signal to a process that runs.
func (s *stage) send(p process, sig syscall.Signal) {
	s.t.Helper()
	if err := p.signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// again starts the leader that has ended.
func (s *stage) again() {
	s.t.Helper()
	s.ended(s.leader, s.process)
	s.up()
}

// ended waits until a process has ended; one that does not writes what it does to its log.
func (s *stage) ended(name string, p process) {
	s.t.Helper()
	if left := gone([]process{p}, 20*time.Second); len(left) > 0 {
		_ = p.signal(syscall.SIGQUIT) // for its stacks
		gone(left, time.Second)
		s.t.Fatalf("%s has not ended:\n%s", name, tail(s.log(name), 400))
	}
}

func (s *stage) log(name string) string {
	for i := range s.c.Members {
		if m := &s.c.Members[i]; m.Name == name {
			return m.Log
		}
	}
	return ""
}

// errors gives the daemons' error messages.
func (s *stage) errors() string {
	s.t.Helper()
	var b strings.Builder
	logs, err := filepath.Glob(filepath.Join(s.c.Dir, "log", "*.log"))
	if err != nil {
		s.t.Fatal(err)
	}
	for _, log := range logs {
		for line := range strings.Lines(lines(s.t, log)) {
			if strings.Contains(line, "level=ERROR") || strings.Contains(line, "internal error") {
				b.WriteString(filepath.Base(log) + ": " + line)
			}
		}
	}
	return b.String()
}

// alerts counts the alerts of a kind in the controllers' logs.
func (s *stage) alerts(event string) (n int) {
	s.t.Helper()
	for i := range s.c.Members {
		if m := &s.c.Members[i]; m.Role == RoleController {
			n += strings.Count(lines(s.t, m.Log), "msg=alert event="+event+" ")
		}
	}
	return n
}

// untold gives the lines of nodes whose session with the leader has ended after a moment in another way than by the
// leader's word. A line that is like an earlier one is written late, with its own time.
func (s *stage) untold(moment time.Time) []string {
	s.t.Helper()
	var out []string
	for i := range s.c.Members {
		m := &s.c.Members[i]
		if m.Role != RoleNode {
			continue
		}
		for line := range strings.Lines(lines(s.t, m.Log)) {
			if !strings.Contains(line, "session with the controller has ended") ||
				strings.Contains(line, `err="another controller leads"`) {
				continue
			}
			stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
			at, err := time.Parse(time.RFC3339Nano, stamp)
			if err != nil {
				s.t.Fatalf("%s: the line %q: %v", m.Name, line, err)
			}
			if at.After(moment) {
				out = append(out, m.Name+": "+line)
			}
		}
	}
	return out
}

// up starts what is missing.
func (s *stage) up() {
	s.t.Helper()
	if _, _, err := tryUp(s.t, Options{Dir: s.c.Dir, Bin: s.bin}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) eachController(do func(name string)) {
	do(s.leader)
	for _, name := range s.others() {
		do(name)
	}
}

// others are the other controllers.
func (s *stage) others() []string {
	var out []string
	for i := range s.c.Members {
		if m := &s.c.Members[i]; m.Role == RoleController && m.Name != s.leader {
			out = append(out, m.Name)
		}
	}
	return out
}

// roll starts each daemon anew, controllers first, each when the one before is back.
func (s *stage) roll() {
	s.t.Helper()
	for _, d := range status(s.t, s.c.Dir).Daemons {
		p, ok := processOf(d.PID)
		if !ok {
			s.t.Fatalf("%s does not run", d.Name)
		}
		if err := p.signal(syscall.SIGTERM); err != nil {
			s.t.Fatal(err)
		}
		s.ended(d.Name, p)
		s.up()
		s.answers()
	}
}

// answers waits until every controller's socket answers and one leads.
func (s *stage) answers() {
	s.t.Helper()
	for _, dir := range s.sockets {
		until(s.t, filepath.Base(dir)+" answers", func() bool {
			cl := client.New(dir)
			defer cl.Close()
			return cl.Call(proto.KindPing, &proto.Empty{}, &proto.PingReply{}) == nil
		})
	}
	s.leader, s.process = leaderOf(s.t, s.c)
}

// leads gives the controller that the others take for the leader.
func (s *stage) leads() string {
	for _, dir := range others(s.sockets, s.leader) {
		cl := client.New(dir)
		var reply proto.PingReply
		err := cl.Call(proto.KindPing, &proto.Empty{}, &reply)
		cl.Close()
		if err == nil && reply.Leader != "" {
			return reply.Leader
		}
	}
	return ""
}

// round has one fault, with load all the time. It gives for how long users noticed it, and for how long they may.
func (s *stage) round(f *fault) (g gaps, most time.Duration, failed []error, calls int64) {
	s.t.Helper()
	s.answers()
	at := s.sockets
	if !f.all {
		at = others(at, s.leader)
	}
	tr := newTraffic(s.t, slices.Concat(at, at, at)[:6], s.readAt)
	until(s.t, "jobs run", func() bool { _, ok := tr.start(time.Time{}); return ok })
	moment := time.Now()
	f.hit(s)
	if f.moves {
		until(s.t, "another controller leads", func() bool {
			l := s.leads()
			return l != "" && l != s.leader || f.late && time.Since(moment) > s.duration
		})
	}
	if !f.outage {
		tr.measure(time.Now())
	}
	if f.alert != "" {
		until(s.t, "the alert "+f.alert, func() bool { return s.alerts(f.alert) > 0 })
	}
	if f.lasts {
		time.Sleep(time.Until(moment.Add(max(s.duration, f.least))))
	}
	if f.mend != nil {
		f.mend(s)
		s.answers()
		tr.measure(time.Now())
	}
	if cut := s.untold(moment); f.told && len(cut) > 0 {
		s.t.Errorf("%s: a node was cut off without a word:\n%s", f.name, strings.Join(cut, ""))
	}
	g = tr.silences(moment)
	return g, limit(f.goal, tr.pulse.worst(moment)), tr.end(), tr.calls.Load()
}

// newStage makes a cluster for faults. Its SlurmdTimeout is 8 s.
func newStage(t *testing.T, duration time.Duration) *stage {
	t.Helper()
	s := &stage{t: t, duration: duration}
	o := Options{Dir: filepath.Join(t.TempDir(), "faults"), Nodes: 2, CPUs: 16, MemMiB: 16000, Controllers: 3}
	if os.Getuid() == 0 {
		s.a = mustUpApart(t, o)
		s.c, s.bin = s.a.Cluster, s.a.bin
	} else {
		s.c, _ = mustUp(t, o)
	}
	keepOnFailure(t, o.Dir)
	s.sockets, s.readAt = ready(t, s.c)
	if s.a != nil { // a login host has no session with the leader, and looks for it by itself
		at := s.a.login()
		s.readAt = []string{at, at}
	}
	setQuiet(t, s.c)
	return s
}

// TestFaultsOfLeader has each fault of the leader once. With $GBATCH_FAILOVER rounds of each it prints a table: median
// and maximum of the longest times between two answers to submissions, two starts of jobs, two answers through a node.
// GBATCH_FAILOVER_ONLY picks faults (a,b), GBATCH_FAILOVER_LASTS is how long a stop, a cut or a full disk lasts (3s). A
// job that runs throughout is not touched, nothing runs twice, and all that was acknowledged runs.
func TestFaultsOfLeader(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv("GBATCH_FAILOVER"))
	measuring := err == nil
	if !measuring {
		rounds = 1
	}
	only := os.Getenv("GBATCH_FAILOVER_ONLY")
	lasts, err := time.ParseDuration(os.Getenv("GBATCH_FAILOVER_LASTS"))
	if err != nil {
		lasts = 3 * time.Second
	}
	s := newStage(t, lasts)
	untouched := steady(t, s.c)
	var table strings.Builder
	fmt.Fprintf(&table, "%-26s %6s %14s  %-15s %-15s %-15s %s\n", "fault", "rounds", "failed calls", "submissions",
		"starts", "login host", "goal (s, median / max / fails at)")
	for i := range faultsOfLeader {
		f := &faultsOfLeader[i]
		picked := only == "" && (measuring || !strings.HasPrefix(f.name, none)) ||
			slices.Contains(strings.Split(only, ","), f.name)
		if !picked || f.apart && s.a == nil {
			continue
		}
		var all []gaps
		failures, calls, worst := 0, int64(0), time.Duration(0)
		for range rounds {
			g, most, failed, n := s.round(f)
			all = append(all, g)
			if measuring {
				fmt.Printf("%s: %.2f %.2f %.2f\n", f.name, g.submit.Seconds(), g.start.Seconds(), g.read.Seconds())
			}
			failures, calls = failures+len(failed), calls+n
			if len(failed) > 0 {
				t.Logf("%s: a call failed: %v; errors in the logs:\n%s", f.name, failed[0], s.errors())
			}
			if f.goal[1] > 0 && max(g.submit, g.start, g.read) > most {
				t.Errorf("%s: something took longer than %v: %v", f.name, most, g)
			}
			worst = max(worst, most)
		}
		if failures > 0 && f.strict {
			t.Errorf("%s: %d of %d calls failed", f.name, failures, calls)
		}
		fmt.Fprintf(&table, "%-26s %6d %14s  %s\n", f.name, rounds, fmt.Sprintf("%d/%d", failures, calls),
			row(all, f.goal, worst))
	}
	untouched()
	t.Log("\n" + table.String())
	if measuring {
		fmt.Print(table.String())
	}
}

// row gives the medians and maxima of some rounds, the goal, and the largest limit, as columns.
func row(all []gaps, goal [2]time.Duration, most time.Duration) string {
	var b strings.Builder
	for i := range 3 {
		var ds []time.Duration
		for _, g := range all {
			ds = append(ds, []time.Duration{g.submit, g.start, g.read}[i])
		}
		slices.Sort(ds)
		fmt.Fprintf(&b, "%-16s", fmt.Sprintf("%.2f / %.2f", ds[len(ds)/2].Seconds(), ds[len(ds)-1].Seconds()))
	}
	if goal[0] == 0 {
		return b.String() + "-"
	}
	return b.String() + fmt.Sprintf("%.2f / %.2f / %.2f", goal[0].Seconds(), goal[1].Seconds(), most.Seconds())
}
