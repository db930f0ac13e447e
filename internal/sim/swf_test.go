package sim

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// job18 is a line of the Standard Workload Format.
func job18(id, submit, run, procs, reqProcs, reqTime, status, user any) string {
	return fmt.Sprintf("%v %v -1 %v %v -1 -1 %v %v -1 %v %v -1 -1 -1 -1 -1 -1", id, submit, run, procs, reqProcs, reqTime,
		status, user)
}

// TestSWFOddities checks that errors in logs of the Parallel Workloads Archive are cleaned as the studies do, and that
// omitted lines are reported.
func TestSWFOddities(t *testing.T) {
	for _, x := range []struct {
		name  string
		lines []string
		procs int
		jobs  string // id@submit:run/request*processors
		left  string
	}{
		{"plain", []string{"; MaxProcs: 8", job18(1, 0, 10, 2, 2, 20, 1, 3)}, 8, "1@0:10/20*2", ""},
		{"DOS ends, a mark of byte order, blanks before comments and jobs",
			[]string{"\ufeff; MaxProcs: 8\r", "  ; in between\r", "\r", "  " + job18(1, 0, 10, 2, 2, 20, 1, 3) + " \r"}, 8,
			"1@0:10/20*2", ""},
		{"comments in the middle", []string{"; MaxProcs: 8", job18(1, 0, 10, 2, 2, 20, 1, 3),
			"; from here on the new machine", job18(2, 5, 10, 2, 2, 20, 1, 3)}, 8, "1@0:10/20*2 2@5:10/20*2", ""},
		{"MaxProcs unknown after MaxNodes",
			[]string{"; MaxNodes: 128 (of 8)", "; MaxProcs: -1", job18(1, 0, 10, 2, 2, 20, 1, 3)}, 128, "1@0:10/20*2", ""},
		{"MaxProcs counts beside MaxNodes",
			[]string{"; MaxNodes: 144", "; MaxProcs: 1152, 8 of each", job18(1, 0, 10, 2, 2, 20, 1, 3)}, 1152, "1@0:10/20*2",
			""},
		{"no header", []string{job18(1, 0, 10, 2, 2, 20, 1, 3)}, 0, "1@0:10/20*2", ""},
		{"not in order: by submission, then place in the file",
			[]string{job18(7, 9, 1, 1, 1, 1, 1, 1), job18(5, 3, 1, 1, 1, 1, 1, 1), job18(4, 9, 1, 1, 1, 1, 1, 1)}, 0,
			"5@3:1/1*1 7@9:1/1*1 4@9:1/1*1", ""},
		{"processors as allocated, else as asked for",
			[]string{job18(1, 0, 10, -1, 4, 20, 1, 3), job18(2, 0, 10, 0, 4, 20, 1, 3), job18(3, 0, 10, 6, 4, 20, 1, 3)}, 0,
			"1@0:10/20*4 2@0:10/20*4 3@0:10/20*6", ""},
		{"cut to the requested time; none asked for is the run time",
			[]string{job18(1, 0, 30, 1, 1, 20, 1, 3), job18(2, 0, 30, 1, 1, -1, 1, 3), job18(3, 0, 30, 1, 1, 0, 1, 3)}, 0,
			"1@0:20/20*1 2@0:30/30*1 3@0:30/30*1", ""},
		{"never ran, cancelled, without processors, parts",
			[]string{job18(1, 0, 0, 1, 1, 20, 5, 3), job18(2, 0, -1, 1, 1, 20, 0, 3), job18(3, 0, 5, -1, -1, 20, 1, 3),
				job18(4, 0, 5, 1, 1, 20, 3, 3), job18(5, 0, 5, 1, 1, 20, 5, 3)}, 0, "5@0:5/20*1",
			"2 never ran, 1 no processors, 1 part of a job that was checkpointed"},
		{"other negative numbers are unknown, and what nobody needs may be anything",
			[]string{"1 0 -2 10 2 1.5e3 9999999999999 2 20 -7.25 1 -9 -1 -1 -1 -1 -3 -1.5"}, 0, "1@0:10/20*2", ""},
		{"whole numbers with a point", []string{"1.0 5.00 -1 10.0 2 -1 -1 2 20 -1 1 1 1 -1 1 -1 -1 -1"}, 0, "1@5:10/20*2",
			""},
	} {
		w, err := Read("log", bufio.NewReader(strings.NewReader(strings.Join(x.lines, "\n")+"\n")))
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		var jobs, left []string
		for _, j := range w.Jobs {
			jobs = append(jobs, fmt.Sprintf("%d@%d:%d/%d*%d", j.ID, j.Submit, j.Run, j.Request, j.CPUs))
		}
		for _, l := range w.Left {
			left = append(left, fmt.Sprintf("%d %s", l.Jobs, l.Why))
		}
		if got := strings.Join(jobs, " "); got != x.jobs || w.MaxProcs != x.procs || strings.Join(left, ", ") != x.left {
			t.Errorf("%s: %d processors, jobs %s, left out %q; want %d, %s, %q", x.name, w.MaxProcs, got, left, x.procs, x.jobs,
				x.left)
		}
	}
}

// TestSWFRefused checks that a file that is no log is refused with the line and the error in it.
func TestSWFRefused(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"1 2 3\n", "log:1: 3 fields"},
		{job18(1, 0, 10, 2, 2, 20, 1, 3) + " 7\n", "more than 18 fields"},
		{job18(1, "x", 10, 2, 2, 20, 1, 3) + "\n", "field 2 (submit time)"},
		{job18(1, -1, 10, 2, 2, 20, 1, 3) + "\n", "field 2 (submit time) is -1"},
		{job18(1, 0, 1<<40, 2, 2, 20, 1, 3) + "\n", "field 4 (run time)"},
		{job18(1, 0, 10.5, 2, 2, 20, 1, 3) + "\n", "a whole number is wanted"},
		{"; MaxProcs: 8\n", "no job that ran"},
		{"", "no job that ran"},
	} {
		if _, err := Read("log", bufio.NewReader(strings.NewReader(x.text))); err == nil ||
			!strings.Contains(err.Error(), x.want) {
			t.Errorf("%q: %v, want %s", x.text, err, x.want)
		}
	}
}

// TestSeveralGzipMembers checks that a file of several gzip members is read to its end.
func TestSeveralGzipMembers(t *testing.T) {
	var b bytes.Buffer
	for _, text := range []string{"; MaxProcs: 4\n" + job18(1, 0, 10, 2, 2, 20, 1, 3) + "\n" +
		job18(2, 1, 10, 2, 2, 20, 1, 3)[:9], job18(2, 1, 10, 2, 2, 20, 1, 3)[9:] + "\n"} {
		z := gzip.NewWriter(&b)
		z.Write([]byte(text))
		z.Close()
	}
	path := filepath.Join(t.TempDir(), "log.swf.gz")
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := Open(path)
	if err != nil || len(w.Jobs) != 2 {
		t.Fatalf("%v: %+v", err, w)
	}
}

// TestTooLargeForTheMachine checks with every scheduler that jobs that the machine can never run are counted and delay
// no other job.
func TestTooLargeForTheMachine(t *testing.T) {
	text := "; MaxProcs: 8\n" + strings.Join([]string{job18(1, 0, 10, 8, 8, 20, 1, 3), job18(2, 1, 10, 9, 9, 20, 1, 3),
		job18(3, 2, 10, 8, 8, 20, 1, -1), job18(4, 2, 10, 100, 100, 20, 1, 3)}, "\n") + "\n"
	for _, name := range strings.Split(SchedulerNames(), ", ") {
		if name == Configured {
			continue
		}
		for _, ev := range []Events{Batch, Single} {
			w, err := Read("log", bufio.NewReader(strings.NewReader(text)))
			if err != nil {
				t.Fatal(err)
			}
			m, err := NewMachine(w, Size{})
			if err != nil {
				t.Fatal(err)
			}
			s, err := NewScheduler(name, m)
			if err != nil {
				t.Fatal(err)
			}
			o, err := Replay(context.Background(), Setup{Work: w, Machine: m, Scheduler: s, Events: ev})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if want := []int64{0, NoStart, 10, NoStart}; !slices.Equal(o.Start, want) {
				t.Errorf("%s: starts %v, want %v", name, o.Start, want)
			}
			if x := o.Measure(); x.Jobs != 2 || x.Refused != 2 {
				t.Errorf("%s: %d jobs, %d refused", name, x.Jobs, x.Refused)
			}
		}
	}
}
