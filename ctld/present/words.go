package present

import (
	"sync"
	"time"

	"gbatch/internal/model"
)

const (
	// mostWords is how many lines are kept for the command of one job, and mostJobs for how many jobs.
	mostWords = 16
	mostJobs  = 4096
	// wordsFor is how long a line waits for a command that does not ask just now: its controller may have changed.
	wordsFor = time.Minute
)

// Words are lines for the commands that have allocations (gcontrol notify). They are the leader's own: what a leader
// has taken and not passed on is lost with it.
type Words struct {
	mu   sync.Mutex
	last uint64
	of   map[model.JobID][]word
	news chan struct{} // closed by the next line
}

type word struct {
	n    uint64
	at   time.Time
	text string
}

// Say keeps a line for the command of a job. false: too many wait.
func (w *Words) Say(id model.JobID, text string, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, list := range w.of {
		if now.Sub(list[len(list)-1].at) > wordsFor {
			delete(w.of, id)
		}
	}
	if len(w.of[id]) >= mostWords || len(w.of) >= mostJobs {
		return false
	}
	if w.of == nil {
		w.of = map[model.JobID][]word{}
	}
	w.last = max(w.last+1, uint64(now.UnixMicro())) // larger than those of a leader before
	w.of[id] = append(w.of[id], word{w.last, now, text})
	if w.news != nil {
		close(w.news)
		w.news = nil
	}
	return true
}

// Since gives the lines for the command of a job that follow those of a number, the last one's number, and a channel
// that is closed when there may be more. Lines up to that number have come and are forgotten.
func (w *Words) Since(id model.JobID, heard uint64) (lines []string, last uint64, more <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.of[id]
	for len(list) > 0 && list[0].n <= heard {
		list = list[1:]
	}
	if len(list) == 0 {
		delete(w.of, id)
	} else {
		w.of[id] = list
	}
	last = heard
	for _, l := range list {
		lines, last = append(lines, l.text), l.n
	}
	if w.news == nil {
		w.news = make(chan struct{})
	}
	return lines, last, w.news
}
