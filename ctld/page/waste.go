package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// waste.go finds who holds GPUs that do next to nothing: each GPU counts, also one of a job whose others are busy.

// wasteLine is a user whose running jobs hold idle GPUs.
type wasteLine struct {
	User      string
	GPUs      int
	Hours     float64
	Jobs      []string
	HoursText string
	known     bool // for how long
}

// Limits of the question for how long GPUs have been idle.
const (
	wasteFor   = 24 * 3600 // seconds back
	wasteStepS = 600       // of a point: gdbd's mean of it has to be idle
	maxWaste   = 512       // GPUs that are asked about
)

// idleGPU is an idle GPU that a job holds.
type idleGPU struct {
	job   *model.Job
	idleS int64
}

// waste sums up, by user, the idle GPUs of running jobs, and for how long they have been so.
func (q *request) waste(v *operatorsView) error {
	units := map[unitOf]*idleGPU{}
	var names []string
	_, _, _, err := q.jobs(&proto.JobsRequest{Filter: proto.JobFilter{States: []model.JobState{model.Running}}}, 0,
		func(j *model.Job) bool {
			eachGPU(j, func(node string, gpu int32) {
				at := unitOf{node, gpu}
				if !v.idle[at] || units[at] != nil {
					return
				}
				units[at] = &idleGPU{job: j}
				if j.Expect != nil {
					units[at].idleS = j.Expect.IdleS
				}
				if v.WasteMore = len(names) >= maxWaste; !v.WasteMore {
					names = append(names, fmt.Sprintf("%s/%d", node, gpu))
				}
			})
			return false
		})
	if err != nil || len(units) == 0 {
		return err
	}
	from := (q.now - wasteFor*1000) / 60_000 * 60_000
	for _, s := range q.past(&proto.HistoryRequest{Of: proto.HistoryGPU, Names: names, Start: from,
		StepS: wasteStepS}) {
		node, index, _ := strings.Cut(s.Name, "/")
		gpu := int32(-1)
		if _, err := fmt.Sscan(index, &gpu); err != nil {
			continue // of a MIG instance
		}
		if u := units[unitOf{node, gpu}]; u != nil {
			u.idleS = max(u.idleS, idleSince(&s, u.job, q.now))
		}
	}
	v.sumWaste(units)
	return nil
}

// idleSince says for how many seconds a GPU has been idle while a job held it.
func idleSince(s *proto.HistorySeries, j *model.Job, now model.Time) int64 {
	since := now
	for _, p := range slices.Backward(s.Points) {
		begin := p.At - model.Time(s.StepS)*1000
		if since-p.At > 2*model.Time(s.StepS)*1000 || len(p.Values) == 0 || p.Values[0] < 0 ||
			p.Values[0] >= model.IdleGPUPct {
			break
		}
		if since = min(since, max(begin, j.Run.Start)); begin <= j.Run.Start {
			break
		}
	}
	return int64(now-since) / 1000
}

func (v *operatorsView) sumWaste(units map[unitOf]*idleGPU) {
	by := map[string]*wasteLine{}
	for _, u := range units {
		user := u.job.Spec.User
		w := by[user]
		if w == nil {
			w = &wasteLine{User: user}
			by[user], v.Waste = w, append(v.Waste, w)
		}
		w.GPUs++
		w.Hours += (time.Duration(u.idleS) * time.Second).Hours()
		w.known = w.known || u.idleS > 0
		if ref := jobtext.RefText(refOf(u.job)); len(w.Jobs) < 5 && !slices.Contains(w.Jobs, ref) {
			w.Jobs = append(w.Jobs, ref)
		}
	}
	for _, w := range v.Waste {
		slices.Sort(w.Jobs)
		if w.known {
			w.HoursText = strings.TrimSuffix(fmt.Sprintf("%.1f", w.Hours), ".0")
		}
	}
	slices.SortFunc(v.Waste, func(a, b *wasteLine) int {
		return cmp.Or(cmp.Compare(b.Hours, a.Hours), cmp.Compare(b.GPUs, a.GPUs), strings.Compare(a.User, b.User))
	})
	v.Waste = v.Waste[:min(len(v.Waste), maxRows)]
}
