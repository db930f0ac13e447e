package noded

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"
)

// sampletree.go samples jobs on hosts without control groups: their processes are found in /proc by session and
// parent, from those that gshim started. That is coarser: what began and ended between two samples is missed unless
// its parent waited for it, and a process that took a session of its own and lost its parent is no longer known to be
// the job's.

const (
	// treeFresh is how long a look at all processes serves: the jobs of one round share it.
	treeFresh = 200 * time.Millisecond
	// maxTreeProcs bounds the processes of the machine that are looked at.
	maxTreeProcs = 1 << 16
	// userHZ is the unit of times in /proc, per second: the same on every machine that this runs on.
	userHZ = 100
)

// treeProc is one process of the machine.
type treeProc struct {
	pid, parent, session int
	userMS, sysMS        int64 // its own and that of children it has waited for
}

// procTree is all processes of the machine.
type procTree struct {
	at   time.Time
	list []treeProc
}

// look reads /proc unless it has just been read.
func (t *procTree) look(r *procReader, now time.Time) {
	if since := now.Sub(t.at); !t.at.IsZero() && since >= 0 && since < treeFresh {
		return
	}
	t.at, t.list = now, t.list[:0]
	d, err := os.Open("/proc")
	if err != nil {
		return // no /proc, no samples
	}
	names, _ := d.Readdirnames(-1) // what has been read of a directory that can't be read to its end is something
	_ = d.Close()                  // only read from
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || len(t.list) == maxTreeProcs {
			continue
		}
		if p, ok := parseTreeProc(pid, r.file(pid, "/stat")); ok {
			t.list = append(t.list, p)
		}
	}
}

// parseTreeProc reads a line of /proc/PID/stat; the name in it may hold anything.
func parseTreeProc(pid int, b []byte) (treeProc, bool) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return treeProc{}, false // it has ended
	}
	// Behind the name: state is field 3, parent 4, session 6, CPU times 14 to 17.
	f := bytes.Fields(b[end+1:])
	const first, last = 3, 17
	if len(f) <= last-first {
		return treeProc{}, false
	}
	n := func(field int) int64 { return digitsOf(f[field-first]) }
	const ms = 1000 / userHZ
	return treeProc{pid: pid, parent: int(n(4)), session: int(n(6)), userMS: (n(14) + n(16)) * ms,
		sysMS: (n(15) + n(17)) * ms}, true
}

// below gives the processes of sessions that these lead, and their descendants, by pid.
func (t *procTree) below(heads []int) []int {
	var pids []int
	for _, p := range t.of(heads) {
		pids = append(pids, p.pid)
	}
	slices.Sort(pids)
	return pids
}

func (t *procTree) of(heads []int) []treeProc {
	if len(heads) == 0 {
		return nil
	}
	in := map[int]bool{}
	var mine []treeProc
	for more := true; more; {
		more = false
		for _, p := range t.list {
			if !in[p.pid] && (in[p.parent] || slices.Contains(heads, p.pid) || slices.Contains(heads, p.session)) {
				in[p.pid], more = true, true
				mine = append(mine, p)
			}
		}
	}
	return mine
}

// sampleTree takes one sample of a job that has no group.
func (s *sampler) sampleTree(j *sampled) {
	s.tree.look(&s.reader, s.now())
	mine := s.tree.of(j.heads)
	if len(mine) == 0 {
		return // it has just ended
	}
	slices.SortFunc(mine, func(a, b treeProc) int { return a.pid - b.pid })
	pids := s.reader.pids[:0]
	var user, sys int64
	for _, p := range mine {
		pids = append(pids, p.pid)
		user, sys = user+p.userMS, sys+p.sysMS
	}
	s.reader.pids = pids[:0]
	u := &j.use
	u.UserMS, u.SysMS = max(u.UserMS, user), max(u.SysMS, sys)
	s.look(j, pids, false)
	u.Samples++
	j.dirty = true
}
