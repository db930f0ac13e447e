package conf

import (
	"strings"
	"testing"
)

// TestSchedulerNotes: what gbatch check says of parameters that change nothing here, or only elsewhere; those that act
// are passed over in silence.
func TestSchedulerNotes(t *testing.T) {
	for params, want := range map[string]string{
		"bf_continue":               "it is always so here: a pass goes on to its end over the facts of one moment",
		"bf_yield_interval=1000000": "a pass works on a copy of the facts and holds no lock that it could yield",
		"bf_yield_sleep=1000":       "a pass works on a copy of the facts and holds no lock that it could yield",
		"bf_one_resv_per_job":       "it is always so here",
		"sched_interval=60":         "a pass is made whenever something has changed",
		"preempt_reorder_count=3": "the smallest set of jobs that makes room is always looked for, unless " +
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
}
