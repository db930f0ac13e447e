package state

import (
	"bytes"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// After every kind of failure the job's record has a sentence, and the failed node if there is one.
func TestEveryEndSaysWhy(t *testing.T) {
	const one, two = "node n1 cpus=4 gpu=a100:2\nnode n2 cpus=4\npart p nodes=n1,n2\nconfigure\njoin n1 boot=b1\njoin " +
		"n2 boot=b1\n", "start 1 n1,n2\nstarted 1\n"
	for _, c := range []struct {
		name, script string
		state        model.JobState
		text, node   string
	}{
		{"completed", "submit\nstart 1 n1\nstarted 1\nended 1", model.Completed, "", ""},
		{"exit code", "submit\nstart 1 n1\nstarted 1\nended 1 code=3", model.Failed, "its script ended with exit code 3", ""},
		{"no such command", "submit\nstart 1 n1\nstarted 1\nended 1 code=127", model.Failed,
			"exit code 127: as a rule a command that was not found", ""},
		{"signal", "submit\nstart 1 n1\nstarted 1\nended 1 signal=11", model.Failed, "its script was ended by signal 11", ""},
		{"launcher lost", "submit\nstart 1 n1\nstarted 1\nended 1 unknown", model.Failed, "exit status unknown", ""},
		{"memory", "submit\nstart 1 n1\nstarted 1\nended 1 oom", model.OutOfMemory, "ran out of memory", ""},
		{"cancelled", "submit\nstart 1 n1\nstarted 1\ncancel 1 uid=7\nended 1 signal=15", model.Cancelled,
			"cancelled by its owner", ""},
		{"cancelled by another", "submit\nstart 1 n1\nstarted 1\ncancel 1 uid=9\nended 1 signal=15", model.Cancelled,
			"cancelled by user id 9", ""},
		{"cancelled waiting", "submit\ncancel 1 uid=7", model.Cancelled, "cancelled by its owner", ""},
		{"time limit", "submit limit=60\nstart 1 n1\nstarted 1\ntick +61\nended 1 signal=15", model.Timeout,
			"reached its time limit of 00:01:00", ""},
		{"preempted", "submit\nstart 1 n1\nstarted 1\npreempt 1\nended 1 signal=15", model.Preempted,
			"preempted by a job of higher priority", ""},
		{"node silent", "submit\nstart 1 n1\nstarted 1\nlost n1", model.NodeFail, "node n1 does not answer", "n1"},
		{"other node silent", "submit\n" + two + "lost n2\nended 1 signal=15", model.NodeFail, "node n2 does not answer",
			"n2"},
		{"node rebooted", "submit\nstart 1 n1\nstarted 1\njoin n1 boot=b2", model.NodeFail,
			"node n1 was rebooted while the job was on it", "n1"},
		{"job forgotten", "submit\nstart 1 n1\nstarted 1\njoin n1 boot=b1", model.NodeFail, "node n1 has lost the job", "n1"},
		{"node set down", "submit\nstart 1 n1\nstarted 1\ndown n1 reason=smoke\nended 1 signal=15", model.NodeFail,
			"node n1 was set DOWN by root: smoke", "n1"},
		{"gpu fault", "submit\nstart 1 n1 gpu=0\nstarted 1\ntells n1 0:5:XID-79\nended 1 signal=15", model.NodeFail,
			"gpu 0 of node n1: XID-79", "n1"},
		{"cancelled after all", "submit requeue\nstart 1 n1\nstarted 1\ndown n1\ncancel 1 uid=7\nended 1 signal=15",
			model.Cancelled, "cancelled by its owner", ""},
		{"dependency", "submit\nsubmit dep=afterok:1 kill\nstart 1 n1\nstarted 1\nended 1 code=1", model.Cancelled,
			"waits for afterok:1, which can't come true any more: job 1 ended FAILED", ""},
		{"dependency on an array", "submit array=0-2\nsubmit dep=afterok:1 kill\nstart 1_0 n1\nstarted 3\nended 3\nstart " +
			"1_1 n1\nstarted 4\nended 4 code=1\nstart 1_2 n1\nstarted 1\nended 1",
			model.Cancelled, "waits for afterok:1, which can't come true any more: job 1_1 ended FAILED", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSession(t)
			var out bytes.Buffer
			for _, line := range strings.Split(strings.TrimSpace(one+c.script), "\n") {
				s.at = line
				s.do(&out, line)
			}
			j := s.st.View().Job(1)
			if strings.HasPrefix(c.name, "dependency") {
				j = s.st.View().Job(2)
			}
			if j == nil || j.State != c.state || !strings.Contains(j.EndText(), c.text) ||
				(c.text == "") != (j.EndText() == "") {
				t.Fatalf("ended %+v, says %q; want %s, %q\n%s", j, j.EndText(), c.state, c.text, out.String())
			}
			node := ""
			if j.Run != nil {
				node = j.Run.FailedNode
			}
			if node != c.node {
				t.Errorf("failed node %q, want %q", node, c.node)
			}
			if c.name == "launcher lost" && j.End.Exit.Code == 0 {
				t.Error("FAILED with exit code 0")
			}
		})
	}
}

// TestPreemptedForWhom: with PrivateData=jobs the end of a preempted job names no job of another user.
func TestPreemptedForWhom(t *testing.T) {
	for _, c := range []struct {
		private []string
		by      string
		want    string
	}{
		{nil, "8", "preempted for job 2"}, {[]string{"jobs"}, "7", "preempted for job 2"},
		{[]string{"jobs"}, "8", "preempted by a job of higher priority"},
		{[]string{"nodes"}, "8", "preempted for job 2"},
	} {
		s := newSession(t)
		s.cfg.Params.PrivateData = c.private
		var out bytes.Buffer
		do := func(script string) {
			for line := range strings.SplitSeq(script, "\n") {
				s.at = line
				s.do(&out, line)
			}
		}
		do("node n1 cpus=4\npart p nodes=n1\nconfigure\njoin n1 boot=b1\nsubmit uid=7\nsubmit uid=" + c.by +
			"\nstart 1 n1\nstarted 1")
		s.apply(&Starts{Plan: model.Plan{Preempt: []model.Preemption{{Job: 1, For: 2}}}})
		do("ended 1 signal=15")
		if text := s.st.View().Job(1).EndText(); text != c.want {
			t.Errorf("PrivateData=%v, for a job of uid %s: %q, not %q\n%s", c.private, c.by, text, c.want, out.String())
		}
	}
}
