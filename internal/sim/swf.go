package sim

import (
	"math"
	"strconv"
	"strings"
)

// The Standard Workload Format: one job a line, 18 numbers, -1 where one is not known; lines that begin with ; are the
// header. Source: Chapin, Cirne, Feitelson, Jones, Leutenegger, Schwiegelshohn, Smith, Talby: Benchmarks and standards
// for the evaluation of parallel job schedulers, JSSPP 1999; the Parallel Workloads Archive's page on the format.
const (
	swfFields = 18

	swfID = iota - 1
	swfSubmit
	swfWait
	swfRun
	swfProcs
	swfCPUTime
	swfMem
	swfReqProcs
	swfReqTime
	swfReqMem
	swfStatus
	swfUser
	swfGroup
	swfApp
	swfQueue
	swfPartition
	swfPreceding
	swfThink
)

var swfNames = [swfFields]string{"job number", "submit time", "wait time", "run time", "allocated processors",
	"CPU time",
	"used memory", "requested processors", "requested time", "requested memory", "status", "user", "group", "application",
	"queue", "partition", "preceding job", "think time"}

// Largest values that a job may have.
const (
	maxSeconds = 1 << 31 // of a run; a submission may lie a few hundred times as far
	maxUnits   = 1 << 24 // processors or GPUs
)

func readSWF(l *lines) (*Workload, error) {
	w := &Workload{Name: l.file}
	queues := map[int64]string{}
	users := names{prefix: "u"}
	groups := names{prefix: "g"}
	for {
		line, ok := l.next()
		if !ok {
			return w, nil
		}
		line = strings.TrimSpace(line)
		if text, is := strings.CutPrefix(line, ";"); is {
			w.swfHeader(text, queues)
			continue
		}
		if line == "" {
			continue
		}
		f, err := swfLine(l, line)
		if err != nil {
			return nil, err
		}
		if err := l.room(w); err != nil {
			return nil, err
		}
		switch f[swfStatus] {
		case 2, 3, 4: // the whole of such a job has a line of its own
			w.leave("part of a job that was checkpointed")
			continue
		}
		procs := f[swfProcs]
		if procs <= 0 {
			procs = f[swfReqProcs]
		}
		j := Job{ID: f[swfID], Submit: f[swfSubmit], Run: f[swfRun], Request: f[swfReqTime],
			User: users.of(f[swfUser]), Account: groups.of(f[swfGroup]), Queue: queues[f[swfQueue]]}
		if w.GPUProcs {
			j.GPUs = int32(max(0, procs))
		} else {
			j.CPUs = int32(max(0, procs))
		}
		w.add(j)
	}
}

// swfHeader reads the relevant values of a header line.
func (w *Workload) swfHeader(text string, queues map[int64]string) {
	key, value, ok := strings.Cut(text, ":")
	if !ok {
		return
	}
	value = strings.TrimSpace(value)
	number := func() int64 {
		digits := value
		if end := strings.IndexFunc(value, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
			digits = value[:end]
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n < 0 || n > maxSeconds*2 {
			return 0
		}
		return n
	}
	switch strings.TrimSpace(key) {
	case "MaxProcs":
		if n := number(); n > 0 {
			w.MaxProcs = int(min(n, maxUnits))
		}
	case "MaxNodes": // counts where MaxProcs isn't known
		if w.MaxProcs == 0 {
			w.MaxProcs = int(min(number(), maxUnits))
		}
	case "UnixStartTime":
		w.Epoch = number()
	case "Queue":
		if id, name, ok := strings.Cut(value, " "); ok {
			if n, err := strconv.ParseInt(id, 10, 64); err == nil && len(queues) < 10_000 {
				queues[n] = partitionName(name)
			}
		}
	case "Note":
		w.GPUProcs = w.GPUProcs || strings.HasPrefix(value, "processors are GPUs")
	}
}

// swfLine reads the numbers of a line.
func swfLine(l *lines, line string) (f [swfFields]int64, err error) {
	n := 0
	for text := range strings.FieldsSeq(line) {
		if n == swfFields {
			return f, l.bad("more than %d fields: a job of the Standard Workload Format has exactly %d numbers", swfFields,
				swfFields)
		}
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			x, err := strconv.ParseFloat(text, 64)
			if err != nil || x != x || x > 1e15 || x < -1e15 {
				return f, l.bad("field %d (%s) is %q: a number is wanted, -1 where it isn't known", n+1, swfNames[n], shorten(text))
			}
			if n != swfWait && n != swfCPUTime && n != swfMem && n != swfReqMem && n != swfPreceding && n != swfThink &&
				x != float64(int64(x)) {
				return f, l.bad("field %d (%s) is %s: a whole number is wanted", n+1, swfNames[n], shorten(text))
			}
			v = int64(x)
		}
		most := int64(maxSeconds)
		switch n {
		case swfWait, swfCPUTime, swfMem, swfReqMem, swfPreceding, swfThink:
			most = math.MaxInt64 // nothing depends on them
		case swfID, swfSubmit:
			most = 1 << 40
		case swfProcs, swfReqProcs:
			most = maxUnits
		}
		if v > most {
			return f, l.bad("field %d (%s) is %s: from -1 to %d", n+1, swfNames[n], shorten(text), most)
		}
		f[n] = max(v, -1) // some logs have other negative numbers for what isn't known
		n++
	}
	switch {
	case n < swfFields:
		return f, l.bad("%d fields: a job of the Standard Workload Format has %d numbers", n, swfFields)
	case f[swfID] < 0:
		return f, l.bad("field 1 (job number) is -1: every job needs one")
	case f[swfSubmit] < 0:
		return f, l.bad("field 2 (submit time) is -1: a job that was never submitted can't be simulated")
	}
	return f, nil
}

// shorten cuts text for an error.
func shorten(s string) string {
	if len(s) > 40 {
		return s[:40] + "..."
	}
	return s
}

// names makes names of numbers, one string for each.
type names struct {
	prefix string
	seen   map[int64]string
}

func (n *names) of(id int64) string {
	if id < 0 {
		return ""
	}
	if s, ok := n.seen[id]; ok {
		return s
	}
	if n.seen == nil {
		n.seen = map[int64]string{}
	}
	s := n.prefix + strconv.FormatInt(id, 10)
	n.seen[id] = s
	return s
}

// partitionName makes a queue's name one that a partition may have.
func partitionName(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, strings.TrimSpace(s))
}
