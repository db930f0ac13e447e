package state

import (
	"testing"

	"gbatch/internal/model"
)

// TestEpilogOfLostJob: EpilogSlurmctld runs for a job whose first node is lost, and the job ends, or goes back into the
// queue, after it, as it would without. What an older leader wrote means what it did.
func TestEpilogOfLostJob(t *testing.T) {
	lost := func(t *testing.T, nodes int, how string) (*session, *model.Job) {
		s, j := manyNodes(t, nodes)
		cfg := *s.st.View().Config()
		cfg.Params.Rules.CtldEpilog = []string{"/epilog"}
		s.apply(&SetConfig{Config: &cfg})
		s.now = s.now.Add(400)
		switch how {
		case "cancelled":
			s.apply(&Stop{Targets: []model.JobRef{{Job: j.ID, Task: model.NoTask}}, Event: model.EvCancel, UID: 7})
			s.apply(&Lost{Nodes: []string{"n1"}})
		case "rebooted":
			s.apply(&Join{Node: "n1", BootID: "b2"})
		default:
			s.apply(&Lost{Nodes: []string{"n1"}})
		}
		return s, j
	}
	passed := func(s *session, j *model.Job) {
		s.apply(&Reports{Placed: true, Reports: []Report{{Kind: ProgramPassed, Job: j.ID, Attempt: 1, At: s.now}}})
	}
	for how, end := range map[string]model.JobState{"lost": model.Pending, "rebooted": model.Pending,
		"cancelled": model.Cancelled} {
		t.Run(how, func(t *testing.T) {
			s, j := lost(t, 1, how)
			s.want("it waits", s.job(j.ID).State, model.Completing)
			s.want("for the epilog", s.job(j.ID).Run.Program, model.CtldEpilog)
			s.replicas()
			at := s.now
			s.now = s.now.Add(20)
			passed(s, j)
			s.want("what becomes of it", s.job(j.ID).State, end)
			if end == model.Cancelled {
				s.want("its end", s.job(j.ID).End.At, at)
			} else {
				s.want("restarts", s.job(j.ID).Attempt, uint32(2))
			}
			s.want("jobs on n1", s.st.View().Node("n1").Jobs, "[]")
			s.replicas()
		})
	}
	t.Run("the node comes back meanwhile", func(t *testing.T) {
		s, j := lost(t, 1, "lost")
		s.apply(&Join{Node: "n1", BootID: "b", Known: []Report{{Job: j.ID, Attempt: 1}}})
		s.says(j.ID, Ended, "n1") // it had ended before the node was given up
		s.want("it waits for the epilog", s.job(j.ID).Run.Program, model.CtldEpilog)
		passed(s, j)
		s.want("its true end", s.job(j.ID).State, model.Completed)
		s.replicas()
	})
	t.Run("a repeated report", func(t *testing.T) {
		s, j := manyNodes(t, 1)
		cfg := *s.st.View().Config()
		cfg.Params.Rules.CtldEpilog = []string{"/epilog"}
		s.apply(&SetConfig{Config: &cfg})
		s.says(j.ID, Ended, "n1")
		s.says(j.ID, Ended, "n1")
		s.want("it waits for the epilog", s.job(j.ID).State, model.Completing)
		passed(s, j)
		s.want("its end", s.job(j.ID).State, model.Completed)
	})
	s, j := manyNodes(t, 1)
	cfg := *s.st.View().Config()
	cfg.Params.Rules.CtldEpilog = []string{"/epilog"}
	s.apply(&SetConfig{Config: &cfg})
	s.st.Apply(Command{At: s.now.Add(400), Body: &Lost{Nodes: []string{"n1"}}, rules: rulesLast})
	s.want("as it was written before", s.job(j.ID).State, model.Pending)
}
