package noded

import (
	"slices"
	"sort"
	"sync"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// report.go makes reports to the leader, and has their outbox: the copy in memory of the spool's reports. The loop adds
// them once they are durable and removes them when they are acknowledged; the present session sends those that it has
// not sent yet.

const (
	// startedPatience is how long the report of a job's start waits for other reports. It is not urgent, and the end of
	// a short job then goes into the same message.
	startedPatience = 8 * time.Millisecond
	// reportPace is the least time between two messages with reports; the first after a rest goes at once.
	reportPace = 5 * time.Millisecond

	// frameBytes is the most that the reports of one message have, as far as it is known: the leader takes frames of
	// 16 MiB, and puts reports of many nodes into one command.
	frameBytes = 1 << 20

	// maxReportText is the most text in a report, bytes.
	maxReportText = 4096
	// maxBareName is the most of a step's name in a report without details, bytes.
	maxBareName = 64
	// maxAcked is how many acknowledged reports one record of the spool names.
	maxAcked = 4096
)

// outbox has the reports that are not acknowledged, by ascending Seq.
type outbox struct {
	mu      sync.Mutex
	reports []*proto.Report
	again   []*proto.Report // asked for: to be sent even if this session has sent them
	urgent  bool            // somebody waits for one of them
	wake    chan struct{}
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// put adds reports; their Seqs are greater than all before.
func (o *outbox) put(rs ...*proto.Report) {
	if len(rs) == 0 {
		return
	}
	patient := !slices.ContainsFunc(rs, func(r *proto.Report) bool { return r.Kind != proto.ReportStarted })
	o.mu.Lock()
	o.reports = append(o.reports, rs...)
	if !patient {
		o.urgent = true
	}
	o.mu.Unlock()
	o.ring()
}

// gather waits until the reports in the outbox should be sent: at once if one is urgent and the last message is long
// enough ago, otherwise a little later. It ends early with done.
func (o *outbox) gather(done <-chan struct{}, last time.Time) {
	begin := time.Now()
	for {
		o.mu.Lock()
		urgent := o.urgent
		o.mu.Unlock()
		until := begin.Add(startedPatience)
		if urgent {
			until = last.Add(reportPace)
		}
		wait := time.Until(until)
		if wait <= 0 {
			return
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-o.wake:
		case <-done:
			t.Stop()
			return
		}
		t.Stop()
	}
}

// repeat makes reports that are in the outbox go out once more.
func (o *outbox) repeat(rs []*proto.Report) {
	if len(rs) == 0 {
		return
	}
	o.mu.Lock()
	o.urgent = true
	o.again = append(o.again, rs...)
	o.mu.Unlock()
	o.ring()
}

func (o *outbox) ring() {
	select {
	case o.wake <- struct{}{}:
	default: // awake already
	}
}

// remove takes out what is acknowledged or forgotten.
func (o *outbox) remove(gone func(*proto.Report) bool) {
	o.mu.Lock()
	o.reports = slices.DeleteFunc(o.reports, gone)
	o.mu.Unlock()
}

// after gives up to max reports with a Seq greater than sent, and before them those that were asked for again; of both
// together as many as go into frameBytes, and one in any case.
func (o *outbox) after(sent uint64, max int) []*proto.Report {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []*proto.Report
	bytes := 0
	room := func(r *proto.Report) bool {
		bytes += reportBytes(r)
		if len(out) > 0 && bytes > frameBytes {
			return false
		}
		out = append(out, r)
		return true
	}
	again := o.again
	o.again, o.urgent = nil, false
	for i, r := range again {
		if r.Seq <= sent && !room(r) {
			o.again = slices.Clone(again[i:])
			return out
		}
	}
	from := sort.Search(len(o.reports), func(i int) bool { return o.reports[i].Seq > sent })
	for _, r := range o.reports[from:min(len(o.reports), from+max)] {
		if !room(r) {
			break
		}
	}
	return out
}

// reportBytes gives about the size of a report: of a step on a thousand nodes it is most of a megabyte.
func reportBytes(r *proto.Report) int {
	n := 256 + len(r.Text) + len(r.Exit.Text) + useBytes(r.Exit.Use)
	if s := r.Step; s != nil {
		n += 256 + len(s.Name) + len(s.Submit) + len(s.Container) + len(s.Exit.Text) + 64*len(s.Gres) + useBytes(s.Exit.Use)
		for _, name := range s.Nodes {
			n += 5 + len(name)
		}
	}
	return n
}

func useBytes(u *model.Usage) int {
	if u == nil {
		return 0
	}
	n := 64
	for i := range u.Nodes {
		n += 128 + len(u.Nodes[i].Node) + 128*len(u.Nodes[i].GPUs)
	}
	return n
}

// count is how many are not acknowledged.
func (o *outbox) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.reports)
}

// report makes a report, to be sent once it is written. The last one of an attempt is synced.
func (l *loop) report(r *proto.Report) error {
	l.seq++
	r.Seq = l.seq
	if r.At == 0 {
		r.At = l.stamp()
	}
	if a := l.attempts[reportKey(r)]; a != nil {
		r.Since = a.since
	}
	clipReport(r)
	err := l.spool.add(recReport, r, final(r))
	if err != nil {
		l.log.Error("a report is too large for the spool and goes without its details", "job", r.Job, "err", err)
		bareReport(r)
		err = l.spool.add(recReport, r, final(r))
	}
	if err != nil {
		return err
	}
	l.reports = append(l.reports, r)
	return nil
}

// clipReport shortens a report's texts.
func clipReport(r *proto.Report) {
	r.Text, r.Exit.Text = clip(r.Text, maxReportText), clip(r.Exit.Text, maxReportText)
	if s := r.Step; s != nil {
		s.Exit.Text, s.Name, s.Submit = clip(s.Exit.Text, maxReportText), clip(s.Name, maxReportText),
			clip(s.Submit, maxReportText)
	}
}

// bareReport takes out of a report what can be large: it says that something has ended, and how, in any case.
func bareReport(r *proto.Report) {
	r.Exit.Use = nil
	if r.Step != nil {
		s := *r.Step
		s.Name, s.Submit, s.Nodes, s.Gres, s.Exit.Use = clip(s.Name, maxBareName), "", nil, nil, nil
		r.Step = &s
	}
}

// onAck drops the reports that the leader has in its log.
func (l *loop) onAck(seqs []uint64) error {
	acked := map[uint64]bool{}
	var known []uint64
	for _, seq := range seqs {
		r, ok := l.spool.mem.reports[seq]
		if !ok {
			continue
		}
		if acked[seq] {
			continue
		}
		acked[seq] = true
		known = append(known, seq)
		if final(r) {
			l.drop(reportKey(r))
		}
	}
	for part := range slices.Chunk(known, maxAcked) {
		if err := l.spool.add(recAcked, &ackedSeqs{Seqs: part}, false); err != nil {
			return err
		}
	}
	if len(known) == 0 {
		return nil
	}
	l.out.remove(func(r *proto.Report) bool { return acked[r.Seq] })
	return nil
}

func clip(s string, max int) string {
	if len(s) <= max {
		return s
	}
	return s[:max] + "..."
}
