package ctld

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gbatch/ctld/alarm"
	"gbatch/ctld/nearlimit"
	"gbatch/ctld/program"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/plain"
	"gbatch/internal/price"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/state"
)

// alert.go calls AlertProgram when nodes and GPUs fail and when they come back: AlertProgram EVENT SENTENCE, with the
// rest in its environment (below: when daemons do). The leader compares the facts with those of a moment ago. If
// several nodes change at once for the same reason, it makes one call. A new leader starts from the facts that it
// finds: it does not report failures from the moment between two leaders.

const (
	alertPace    = time.Second
	alertTimeout = 60 * time.Second
	maxAlerts    = 32 // calls in one round; further alerts go only to the log
)

// watchAlerts runs until ctx ends.
func (c *Controller) watchAlerts(ctx context.Context) {
	pace := pacer{gap: alertPace}
	nodes := alarm.NewNodes(c.machine.View())
	for ctx.Err() == nil {
		pace.wait(ctx)
		changed := c.machine.Changed()
		v := c.machine.View()
		list := nodes.Compare(v)
		path := v.Config().Params.AlertProgram
		for i := range list {
			a := &list[i]
			c.log.Log(ctx, alertLevel(a.Level), "alert", "event", a.Event, "level", a.Level, "nodes",
				hostlist.Compress(a.Nodes), "gres", a.Gres, "reason", a.Reason)
			if path != "" && i < maxAlerts && ctx.Err() == nil {
				c.runAlert(ctx, v, path, a)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// runAlert calls the program once and waits for it.
func (c *Controller) runAlert(parent context.Context, v *state.View, path string, a *alarm.Alert) {
	p := program.Call{Argv: []string{path, a.Event, plain.Line(a.Sentence())}, Limit: alertTimeout,
		Env: append([]string{program.Path, "SLURM_CLUSTER_NAME=" + v.Config().Cluster}, a.Environ(c.now().Seconds())...)}
	if err := p.Run(parent); err != nil && parent.Err() == nil {
		c.log.Warn("AlertProgram failed; it is not called again for this event", "program", path, "event", a.Event,
			"err", err, "output", p.Said.Line())
	}
}

// It is told, too, of troubles of the daemons themselves: a controller or gdbd that is lost, records that
// pile up, a controller's disk or certificate, a scheduler that completes no pass. Each is told once when it has lasted
// as long as AlertParameters say, and once when it is over. Controllers tell each other what was told, so that the next
// leader tells the end of it.

const (
	certEvery    = time.Minute // between two looks at certificates
	maxCertNotes = 100
	maxTroubles  = 16 // that one controller tells of itself
	calmPct      = 80 // of a bound: below it a trouble is over
)

// watchTroubles runs on the leader until ctx ends.
func (c *Controller) watchTroubles(ctx context.Context) {
	pace := pacer{gap: alertPace}
	began := time.Now()
	var told []alarm.Trouble
	for _, a := range c.alerts() {
		if over := alarm.Overs[a.Event]; over != "" { // a newer version's events are not known here
			told = append(told, alarm.Trouble{Alert: alarm.Alert{Event: a.Event, Daemon: a.Daemon}, Over: over, What: a.What})
		}
	}
	lost := time.Duration(c.machine.View().Config().Params.Alerts.LostS) * time.Second
	w := alarm.NewWatch(told, began.Add(lost+alertSettle))
	for ctx.Err() == nil {
		pace.wait(ctx)
		v := c.machine.View()
		for i, a := range w.Step(time.Now(), c.troubles(v, w, began, time.Now())) {
			c.log.Log(ctx, alertLevel(a.Level), "alert", "event", a.Event, "level", a.Level, "of", a.Daemon, "reason", a.Reason)
			if path := v.Config().Params.AlertProgram; path != "" && i < maxAlerts && ctx.Err() == nil {
				c.runAlert(ctx, v, path, &a)
			}
		}
		if ctx.Err() != nil {
			return // a call may have been cut short: the next leader makes it again
		}
		list := []proto.Alerted{}
		for _, t := range w.Telling() {
			if len(list) < model.MaxList {
				list = append(list, proto.Alerted{Event: t.Event, Daemon: t.Daemon, What: t.What})
			}
		}
		c.alerted.Store(&list)
	}
}

// alertSettle is how long a new leader looks around, besides lost_time, before a trouble of the former one is over.
const alertSettle = 5 * time.Second

// alerts gives what was told and is not over, by the last leader that this controller has heard, or by itself.
func (c *Controller) alerts() []proto.Alerted {
	if list := c.alerted.Load(); list != nil {
		return *list
	}
	return nil
}

// alertLevel is the level of an alert in the log.
func alertLevel(level string) slog.Level {
	switch level {
	case "critical":
		return slog.LevelError
	case "warning":
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// troubles looks for all that is wrong; began is when this controller began to lead.
func (c *Controller) troubles(v *state.View, w *alarm.Watch, began, now time.Time) []alarm.Trouble {
	var list []alarm.Trouble
	r, ship := &v.Config().Params.Alerts, &v.Config().Params.Ship
	add := func(after int64, level, event, daemon, reason string) {
		list = append(list, alarm.Trouble{Alert: alarm.Alert{Event: event, Level: level, Daemon: daemon,
			Reason: reason}, Over: alarm.Overs[event], After: time.Duration(after) * time.Second})
	}
	own := func(name string, all []proto.Trouble) {
		for _, t := range all[:min(len(all), maxTroubles)] {
			if alarm.Overs[t.Event] != "" {
				add(0, "warning", t.Event, "controller "+name, t.Text)
			}
		}
	}
	own(c.opts.Name, c.ownTroubles(v))
	for _, p := range c.members() {
		if p.Name == c.opts.Name {
			continue
		}
		c.clocks.mu.Lock()
		news, known := c.clocks.news[p.Name]
		c.clocks.mu.Unlock()
		last := news.at
		if !known || last.Before(began) {
			last = began
		}
		if silent := now.Sub(last); r.LostS > 0 && silent > time.Duration(r.LostS)*time.Second {
			add(0, "critical", "controller_lost", "controller "+p.Name, fmt.Sprintf("%s does not answer", p.Addr))
		} else if known {
			own(p.Name, news.Troubles)
		}
	}
	if c.opts.DbdAddr != "" {
		for _, d := range c.dbds {
			if r.LostS <= 0 || d.up.Load() {
				continue
			}
			why, level, what := "it does not answer", "critical", "gdbd"
			if s := d.says.Load(); s != nil && s.why != nil {
				why = s.why.Error()
			}
			if d.copy {
				level, what = "warning", "gdbd's copy"
			}
			add(r.LostS, level, "dbd_lost", what, why)
		}
		waiting := int64(v.OutboxLen())
		over := func(event string, bound int64) bool {
			if w.Told(event, "gdbd") {
				bound = bound * calmPct / 100
			}
			return bound > 0 && waiting >= bound
		}
		if over("records_waiting", ship.MaxWaiting*int64(r.RecordsPct)/100) {
			add(0, "warning", "records_waiting", "gdbd", fmt.Sprintf("%d records wait for it; at MaxDBDMsgs=%d the oldest "+
				"are discarded", waiting, ship.MaxWaiting))
		}
		if r.RecordsPct > 0 && over("records_discarded", ship.MaxWaiting) {
			add(0, "critical", "records_discarded", "gdbd", fmt.Sprintf("%d records wait for it, as many as MaxDBDMsgs allows: "+
				"the oldest are discarded", waiting))
		}
	}
	if r.PassS > 0 && v.Pending() > 0 && c.passes.gen.Load() != v.Gen() {
		add(r.PassS, "critical", "scheduler_stuck", "the scheduler",
			fmt.Sprintf("no pass was completed for %d s, and %d jobs wait", r.PassS, v.Pending()))
		list[len(list)-1].Turn = c.passes.done.Load()
	}
	v.Wallets(func(w *price.Wallet) bool {
		if what, used, of := v.Config().Params.Price.Near(w, c.now().Seconds()); what != "" {
			add(0, "warning", "usage_near_limit", "account "+w.Account,
				fmt.Sprintf("%s of %s of its %s are used", used, of, what))
			list[len(list)-1].What = " " + what // its budget is another trouble than its credit
		}
		return true
	})
	warn := int64(v.Config().Params.Price.WarnPct)
	for _, n := range nearlimit.Of(v, c.now(), func(limit string) int64 {
		if w.Told("usage_near_limit", limit) {
			return warn * calmPct / 100 // what goes up and down with each job is told once
		}
		return warn
	}) {
		add(0, "warning", "usage_near_limit", n.Limit, n.Text)
		list[len(list)-1].Jobs = int(n.Jobs)
	}
	for _, cert := range c.issuer.Late() {
		if role, _, _ := strings.Cut(cert.Who, " "); role != pki.RoleCtld { // controllers tell of themselves
			add(0, "warning", "certificate_expires", cert.Who, cert.Text)
		}
	}
	return list
}

// ownTroubles looks at this host: the disk with the log, and the certificates.
func (c *Controller) ownTroubles(v *state.View) []proto.Trouble {
	var list []proto.Trouble
	r := &v.Config().Params.Alerts
	var fs syscall.Statfs_t
	if err := syscall.Statfs(c.opts.Dir, &fs); err == nil && fs.Blocks > 0 && r.DiskFreePct > 0 {
		if free := fs.Bavail * 100 / fs.Blocks; free < uint64(r.DiskFreePct) {
			list = append(list, proto.Trouble{Event: "disk_full", Text: fmt.Sprintf("%d%% of the disk with %s is free (%d MiB)",
				free, c.opts.Dir, fs.Bavail*uint64(fs.Bsize)>>20)})
		}
	}
	if err := c.store.WriteError(); err != nil && !errors.Is(err, syscall.ENOSPC) { // then it is full
		list = append(list, proto.Trouble{Event: "disk_broken", Text: fmt.Sprintf("the log in %s can't be written: %v",
			c.opts.Dir, err)})
	}
	if n, _, err := c.dead.Look(); n > 0 || err != nil {
		list = append(list, proto.Trouble{Event: "records_refused", Text: c.refusedNote(n, err)})
	}
	if slow := c.store.SlowestWrite(); r.DiskSlowMS > 0 && slow >= time.Duration(r.DiskSlowMS)*time.Millisecond {
		list = append(list, proto.Trouble{Event: "disk_slow", Text: fmt.Sprintf("a write of the log in %s has taken %s",
			c.opts.Dir, slow.Round(10*time.Millisecond))})
	}
	if text := c.ownCertLate(r.CertDays); text != "" {
		list = append(list, proto.Trouble{Event: "certificate_expires", Text: text})
	}
	return list
}

// certLook has the certificate of the authority, which is read once a minute.
type certLook struct {
	mu     sync.Mutex
	looked time.Time
	ca     *pki.Holder // nil: it can't be read
}

// ownCertLate says which of this host's certificates expires soon; "": none. A daemon's own is renewed long before:
// that it is not is the trouble.
func (c *Controller) ownCertLate(days int32) string {
	if c.creds == nil { // without a port, in tests
		return ""
	}
	most, now := time.Duration(days)*24*time.Hour, time.Now()
	t := &c.certs
	t.mu.Lock()
	defer t.mu.Unlock()
	path := filepath.Join(c.opts.PKI, "ca.crt")
	if now.Sub(t.looked) >= certEvery {
		t.looked, t.ca = now, nil
		if h, err := pki.CertFile(path); err == nil {
			t.ca = h
		}
	}
	own := c.creds.Own()
	switch {
	case days <= 0:
	case own.Late(now, most):
		return fmt.Sprintf("%s expires on %s and was not renewed; its log says why", c.creds.File(),
			own.Until.Format("2006-01-02 15:04"))
	case t.ca != nil && t.ca.Until.Sub(now) < most:
		return fmt.Sprintf("%s expires on %s; a new authority (gbatch cert init in a new directory) and new certificates "+
			"are due", path, t.ca.Until.Format("2006-01-02"))
	}
	return ""
}

// certNotes names all certificates that expire soon, as far as this controller knows.
func (c *Controller) certNotes(v *state.View) []string {
	var out []string
	if text := c.ownCertLate(v.Config().Params.Alerts.CertDays); text != "" {
		out = append(out, text)
	}
	for _, cert := range c.issuer.Late() {
		if len(out) < maxCertNotes {
			out = append(out, cert.Text)
		}
	}
	return out
}

// passMarks has the scheduler's completed passes.
type passMarks struct {
	gen  atomic.Uint64 // of the facts that the last completed pass saw
	done atomic.Uint64 // passes
}

// completed notes a pass.
func (p *passMarks) completed(v *state.View) {
	p.gen.Store(v.Gen())
	p.done.Add(1)
}
