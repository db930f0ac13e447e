package conf

import (
	"strings"
	"testing"

	"gbatch/internal/model"
)

// TestSchedulerNotes: gbatch check has a note for each parameter without effect, and none for the others.
func TestSchedulerNotes(t *testing.T) {
	for params, want := range map[string]string{
		"bf_continue":               "every pass covers the whole queue at one moment",
		"bf_yield_interval=1000000": "a pass holds no lock, so there is none to release",
		"bf_yield_sleep=1000":       "a pass holds no lock, so there is none to release",
		"bf_one_resv_per_job":       "gbatch always does this",
		"sched_interval=60":         "a pass runs whenever something has changed",
		"preempt_reorder_count=3": "the smallest set of jobs that makes room is always chosen, unless " +
			"preempt_strict_order is set",
		"partition_job_depth=10":     "acts with SchedulerType=sched/builtin only",
		"preempt_strict_order":       "",
		"preempt_youngest_first":     "",
		"bf_max_job_part=3,defer":    "",
		"bf_busy_nodes,bf_window=60": "",
	} {
		c, problems := LoadFS(files("SchedulerParameters="+params), MainFile)
		if c == nil || want == "" && len(problems) > 0 || want != "" &&
			(len(problems) != 1 || problems[0].Severity != Note || !strings.Contains(problems[0].Text, want)) {
			t.Errorf("%s: %s", params, lines(problems))
		}
	}
	if c, problems := LoadFS(
		files("SchedulerType=sched/builtin\nSchedulerParameters=partition_job_depth=10,preempt_strict_order"),
		MainFile); len(problems) > 0 ||
		c.Model().Params.PartDepth != 10 || !c.Model().Params.Preempt.Strict {
		t.Errorf("without backfill: %s", lines(problems))
	}
	for _, text := range []string{"PreemptParameters=youngest_first,strict_order",
		"SchedulerParameters=preempt_youngest_first,preempt_strict_order"} {
		c, problems := LoadFS(files("PreemptType=preempt/qos\nPreemptMode=REQUEUE\n"+text), MainFile)
		if len(problems) > 0 || !c.Model().Params.Preempt.Strict || !c.Model().Params.Preempt.Youngest {
			t.Errorf("%s: %s", text, lines(problems))
		}
	}
}

// TestTaskPluginParam: which words bind tasks, and which do nothing.
func TestTaskPluginParam(t *testing.T) {
	for param, want := range map[string]struct {
		bind model.CPUBind
		says string
	}{
		"Cores":                  {model.CPUBind{How: "cores"}, ""},
		"None,Verbose":           {model.CPUBind{How: "none", Verbose: true}, ""},
		"autobind=Threads":       {model.CPUBind{Else: "threads"}, ""},
		"Autobind=cores,Sockets": {model.CPUBind{How: "sockets", Else: "cores"}, ""},
		"SlurmdOffSpec,Threads":  {model.CPUBind{How: "threads"}, "SlurmdOffSpec has no effect here: gnoded and gshim"},
		"Cores,Threads":          {model.CPUBind{}, "cores and threads are not possible together"},
		"boards":                 {model.CPUBind{}, "not a known value"},
	} {
		c, problems := LoadFS(files("TaskPluginParam="+param), MainFile)
		if c != nil && c.Model().Params.Rules.CPUBind != want.bind || !strings.Contains(lines(problems), want.says) ||
			want.says == "" && len(problems) > 0 {
			t.Errorf("%s: %s", param, lines(problems))
		}
	}
}
