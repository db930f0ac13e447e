package sim

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
)

// TestAcctDump reads the output of gacct -P and sacct -P: steps, array tasks, types of GPUs, unfinished jobs.
func TestAcctDump(t *testing.T) {
	head := "JobID|User|Account|Partition|Submit|Start|End|Timelimit|State|NNodes|AllocCPUS|AllocTRES"
	row := func(id, start, end, limit, state, nodes, cpus, tres string) string {
		return strings.Join([]string{id, "ann", "phys", "p", "2026-01-01T00:00:00", start, end, limit, state, nodes, cpus,
			tres}, "|")
	}
	at := func(s string) string { return "2026-01-01T00:" + s }
	for _, x := range []struct{ line, want string }{
		{row("7", at("01:00"), at("02:00"), "00:05:00", "COMPLETED", "1", "2", "cpu=2,mem=1G"), "7 2c 0g 1n 60/300 left 0"},
		{row("7.batch", at("01:00"), at("02:00"), "", "COMPLETED", "1", "2", "cpu=2"), " left 0"},
		{row("7_3", at("01:00"), at("01:30"), "1-00:00:00", "FAILED", "1", "2", ""), "1 2c 0g 1n 30/86400 left 0"},
		{row("8", at("01:00"), at("02:00"), "UNLIMITED", "TIMEOUT", "2", "4", "cpu=4,gres/gpu=8,gres/gpu:a100=8"),
			"8 4c 8ga100 2n 60/60 left 0"},
		{row("8", at("01:00"), at("02:00"), "05:00", "TIMEOUT", "2", "4", "cpu=4,gres/gpu:a100=8,gres/gpu=8"),
			"8 4c 8ga100 2n 60/300 left 0"},
		{row("9", at("01:00"), at("02:00"), "00:05:00", "COMPLETED", "2", "4", "gres/gpu=3,gres/gpu:a100=2,gres/gpu:v100=1"),
			"9 4c 3g 2n 60/300 left 0"},
		{row("9", at("01:00"), at("02:00"), "00:05:00", "COMPLETED", "2", "4", "gres/gpu:a100=2,gres/gpu:v100=1"),
			"9 4c 3g 2n 60/300 left 0"},
		{row("10", at("01:00"), "Unknown", "00:05:00", "RUNNING", "1", "1", "cpu=1"), " left 1"},
		{row("11", "None", "None", "00:05:00", "CANCELLED by 0", "1", "1", "cpu=1"), " left 1"},
	} {
		// a file without any job is refused
		full := row("1", at("01:00"), at("02:00"), "00:05:00", "COMPLETED", "1", "1", "cpu=1")
		w, err := Read("dump", bufio.NewReader(strings.NewReader(head+"\n"+x.line+"\n"+full+"\n")))
		if err != nil {
			t.Errorf("%s: %v", x.line, err)
			continue
		}
		got, left := "", 0
		for _, j := range w.Jobs[:len(w.Jobs)-1] {
			got += fmt.Sprintf("%d %dc %dg%s %dn %d/%d", j.ID, j.CPUs, j.GPUs, j.GPUType, j.Nodes, j.Run, j.Request)
		}
		for _, l := range w.Left {
			left += l.Jobs
		}
		if got += fmt.Sprint(" left ", left); got != x.want {
			t.Errorf("%s:\n got %s\nwant %s", x.line, got, x.want)
		}
	}
	for _, x := range []struct{ text, want string }{
		{"JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode\n1|a|p||1|COMPLETED|0:0\n", "when they were submitted"},
		{head + "\n" + row("1", at("01:00"), at("02:00"), "05:00", "COMPLETED", "1", "1", "env | sort") + "\n",
			"leave them out: gacct -a -X"},
		{head + "\n" + row("1", "noon", at("02:00"), "05:00", "COMPLETED", "1", "1", "") + "\n", "noon"},
		{head + "\n" + row("1", at("01:00"), at("02:00"), "05:00", "COMPLETED", "1", "1", "gres/gpu=x") + "\n",
			"gres/gpu is \"x\""},
	} {
		if _, err := Read("dump", bufio.NewReader(strings.NewReader(x.text))); err == nil ||
			!strings.Contains(err.Error(), x.want) {
			t.Errorf("%q: %v, want %s", x.text, err, x.want)
		}
	}
}
