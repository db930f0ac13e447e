//go:build linux && (amd64 || arm64)

package shim

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"gbatch/internal/terminal"
)

// TestPassedFiles: a task writes into the pipe that came with its order, also if a second order is in the same message;
// the server keeps no end of it open.
func TestPassedFiles(t *testing.T) {
	forBoth(t, func(t *testing.T, s *session) {
		in, inW, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		outR, out, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var orders []*Launch
		for task := range 3 {
			// One read takes a whole line: a shell's own takes single bytes, which tasks that share a pipe mix up.
			l := newScript(t, `line=$(dd bs=2 count=1 2>/dev/null); echo "$X $line $SLURM_TASK_PID $$"; echo error >&2`)
			l.Key.Task = int32(task)
			if task > 0 {
				l.Key.JobID = orders[0].Key.JobID
			}
			l.Env = append(l.Env, "X="+strconv.Itoa(task))
			l.PIDVar = "SLURM_TASK_PID"
			l.Passed = [PassedFiles]*os.File{in, out, nil}
			orders = append(orders, l.Launch)
		}
		if _, err := inW.WriteString("a\nb\nc\n"); err != nil {
			t.Fatal(err)
		}
		s.launch(orders...)
		for _, o := range orders {
			if e := s.wait(o.Key, Exited); e.Code != 0 || e.Key.Task != o.Key.Task {
				t.Errorf("%+v", e)
			}
		}
		for _, f := range []*os.File{in, inW, out} {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		buf := make([]byte, 4096)
		text := ""
		for {
			n, err := outR.Read(buf)
			text += string(buf[:n])
			if err != nil {
				break // the end: nobody else has the other end open
			}
		}
		lines := strings.Split(strings.TrimSpace(text), "\n")
		if len(lines) != 3 {
			t.Fatalf("%q", text)
		}
		for _, l := range lines {
			if f := strings.Fields(l); len(f) != 4 || f[2] != f[3] {
				t.Errorf("task id, line, SLURM_TASK_PID and pid: %q", l)
			}
		}
	})
}

// TestTerminal: a terminal as standard input is the task's controlling terminal, and its keys send signals.
func TestTerminal(t *testing.T) {
	forBoth(t, func(t *testing.T, s *session) {
		master, slave, err := terminal.Open()
		if err != nil {
			t.Fatal(err)
		}
		defer master.Close() //nolint:errcheck // a test
		l := newScript(t, "trap 'exit 7' INT; echo here >/dev/tty; while :; do sleep 0.05; done")
		l.Passed, l.Terminal = [PassedFiles]*os.File{slave, slave, slave}, true
		s.launch(l.Launch)
		buf := make([]byte, 64)
		if n, err := master.Read(buf); string(buf[:n]) != "here\r\n" || err != nil {
			t.Errorf("%q, %v", buf[:n], err)
		}
		if _, err := master.WriteString("\x03"); err != nil {
			t.Fatal(err)
		}
		if e := s.wait(l.Key, Exited); e.Code != 7 {
			t.Errorf("%+v", e)
		}
		none := newScript(t, "true")
		none.Terminal = true
		s.launch(none.Launch)
		if e := s.wait(none.Key, LaunchFailed); e.Stage != StageTerminal {
			t.Errorf("%+v", e)
		}
		if err := slave.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestMemoryPolicy(t *testing.T) {
	s := start(t)
	l := newScript(t, "cat /proc/self/numa_maps | head -1")
	l.Mem = MemPolicy{Mode: MemBind, Nodes: []int{0}}
	if e := s.run(l.Launch); e.Kind != Exited || e.Code != 0 {
		t.Fatalf("%+v", e)
	}
	if got := l.out(t); got != "" && !strings.Contains(got, "bind:0") {
		t.Errorf("numa_maps: %q", got)
	}
	far := newScript(t, "true")
	far.Mem = MemPolicy{Mode: MemBind, Nodes: []int{900}}
	s.launch(far.Launch)
	if e := s.wait(far.Key, LaunchFailed); e.Stage != StageMemory {
		t.Errorf("%+v", e)
	}
}

// TestOldJournal: a gshim reads a journal whose keys have no task.
func TestOldJournal(t *testing.T) {
	b := []byte(journalMagic1)
	e := encoder{}
	e.u8(recIntent)
	e.u64(7)
	e.u64(1)
	e.i64(-5)
	e.cgroup(Cgroup{V2: "/x"})
	b = append(b, frameRecord(e.b)...)
	_, known, _, why := replay(b)
	if why != nil || len(known) != 1 || known[0].key != (Key{JobID: 7, Attempt: 1, Step: -5}) ||
		known[0].cgroup.V2 != "/x" {
		t.Fatalf("%v %+v", why, known)
	}
	if _, known, _, why = replay(image("boot", known)); why != nil || len(known) != 1 {
		t.Fatalf("%v %+v", why, known)
	}
}
