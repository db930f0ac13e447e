package procs

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"time"
)

// tree.go finds the processes of jobs on hosts without control groups: in /proc by session and parent, from those that
// gshim started. That is coarser: it misses a process that began and ended between two samples, unless its parent
// waited for it, and a process with its own session whose parent has ended no longer counts as the job's.

const (
	// fresh is how long one scan of all processes is used: the jobs of one round share it.
	fresh = 200 * time.Millisecond
	// maxProcs limits the processes of a scan.
	maxProcs = 1 << 16
	// userHZ is the unit of times in /proc, per second: the same on every supported machine.
	userHZ = 100
)

// Proc is one process of the machine.
type Proc struct {
	PID, parent, session int
	UserMS, SysMS        int64 // its own and that of reaped children
}

// Tree is all processes of the machine.
type Tree struct {
	at   time.Time
	list []Proc
}

// Look scans /proc unless it has just done so.
func (t *Tree) Look(r *Reader, now time.Time) {
	if since := now.Sub(t.at); !t.at.IsZero() && since >= 0 && since < fresh {
		return
	}
	t.at, t.list = now, t.list[:0]
	d, err := os.Open("/proc")
	if err != nil {
		return // no /proc, no samples
	}
	names, _ := d.Readdirnames(-1) // after an error the names read so far are used
	_ = d.Close()                  // only read from
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || len(t.list) == maxProcs {
			continue
		}
		if p, ok := parseTreeProc(pid, r.file(pid, "/stat")); ok {
			t.list = append(t.list, p)
		}
	}
}

// Parent gives the parent of a process; false: there is no such process.
func Parent(pid int) (parent int, there bool) {
	p, there := parseTreeProc(pid, new(Reader).file(pid, "/stat"))
	return p.parent, there
}

// parseTreeProc reads a line of /proc/PID/stat; the name in it may have any character.
func parseTreeProc(pid int, b []byte) (Proc, bool) {
	end := bytes.LastIndexByte(b, ')')
	if end < 0 {
		return Proc{}, false // it has ended
	}
	// After the name: state is field 3, parent 4, session 6, CPU times 14 to 17.
	f := bytes.Fields(b[end+1:])
	const first, last = 3, 17
	if len(f) <= last-first {
		return Proc{}, false
	}
	n := func(field int) int64 { return Digits(f[field-first]) }
	const ms = 1000 / userHZ
	return Proc{PID: pid, parent: int(n(4)), session: int(n(6)), UserMS: (n(14) + n(16)) * ms,
		SysMS: (n(15) + n(17)) * ms}, true
}

// Below gives the processes of the sessions that heads lead, and their descendants, by pid.
func (t *Tree) Below(heads []int) []int {
	var pids []int
	for _, p := range t.Of(heads) {
		pids = append(pids, p.PID)
	}
	slices.Sort(pids)
	return pids
}

func (t *Tree) Of(heads []int) []Proc {
	if len(heads) == 0 {
		return nil
	}
	in := map[int]bool{}
	var mine []Proc
	for more := true; more; {
		more = false
		for _, p := range t.list {
			if !in[p.PID] && (in[p.parent] || slices.Contains(heads, p.PID) || slices.Contains(heads, p.session)) {
				in[p.PID], more = true, true
				mine = append(mine, p)
			}
		}
	}
	return mine
}
