package ctld

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gbatch/ctld/nearlimit"
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

// alert is one call.
type alert struct {
	event, level string
	gres         string // gpu:3; "" for nodes
	reason       string
	nodes        []string
	daemon       string // which one, in words; "": it is about nodes
	jobs         int    // jobs with resources there
}

// nodeHealth has a node's data that alerts compare.
type nodeHealth struct {
	seen  *model.Node
	event string // node_down, node_drained or ""
	units map[string]model.UnitOut
}

// watchAlerts runs until ctx ends.
func (c *Controller) watchAlerts(ctx context.Context) {
	pace := pacer{gap: alertPace}
	was := map[string]*nodeHealth{}
	before := c.machine.View()
	c.compareNodes(before, before, was) // the present state: it gives no alerts
	for ctx.Err() == nil {
		pace.wait(ctx)
		changed := c.machine.Changed()
		v := c.machine.View()
		list := c.compareNodes(before, v, was)
		before = v
		path := v.Config().Params.AlertProgram
		for i := range list {
			a := &list[i]
			c.log.Info("alert", "event", a.event, "level", a.level, "nodes", hostlist.Compress(a.nodes), "gres", a.gres,
				"reason", a.reason)
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

// compareNodes gives the changes since the last call, and records the present state in was. It looks for a GPU's jobs
// in the old view too, because a fault ends them.
func (c *Controller) compareNodes(before, v *state.View, was map[string]*nodeHealth) []alert {
	var list []alert
	add := func(node string, jobs int, event, level, gres, reason string) {
		k := slices.IndexFunc(list, func(a alert) bool { return a.event == event && a.gres == gres && a.reason == reason })
		if k < 0 {
			k = len(list)
			list = append(list, alert{event: event, level: level, gres: gres, reason: reason})
		}
		list[k].nodes, list[k].jobs = append(list[k].nodes, node), list[k].jobs+jobs
	}
	v.Nodes(func(n *model.Node) bool {
		name := n.Def.Name
		h := was[name]
		if h != nil && h.seen == n {
			return true
		}
		now := &nodeHealth{seen: n}
		switch {
		case n.Admin == model.NodeDown || n.Link == model.LinkLost:
			now.event = "node_down"
		case n.Admin == model.NodeDrain:
			now.event = "node_drained"
		}
		for _, o := range n.Out {
			if o.Kind == model.OutFault || o.Kind == model.OutDrained || o.Kind == model.OutInUse {
				if now.units == nil {
					now.units = map[string]model.UnitOut{}
				}
				now.units[fmt.Sprintf("%s:%d", o.Name, o.Index)] = o
			}
		}
		was[name] = now
		if h == nil {
			return true // the node is new, or this leader is
		}
		switch {
		case now.event == h.event:
		case now.event == "":
			add(name, 0, "node_back", "info", "", "")
		default:
			level := "warning"
			if now.event == "node_down" {
				level = "critical"
			}
			add(name, max(len(h.seen.Jobs), len(n.Jobs)), now.event, level, "", cmp.Or(n.Reason, "no reason was given"))
		}
		for _, unit := range sortedKeys(now.units) {
			o := now.units[unit]
			if old, had := h.units[unit]; had && old.Kind == o.Kind {
				continue
			}
			event, level := "gpu_drained", "warning"
			switch o.Kind {
			case model.OutFault:
				event, level = "gpu_fault", "critical"
			case model.OutInUse:
				event = "gpu_foreign_use"
			case model.OutDrained, model.OutCleared, model.OutSpent:
			}
			add(name, len(jobsOn(name, o.Name, int(o.Index), before, v)), event, level, unit, o.Reason)
		}
		for _, unit := range sortedKeys(h.units) {
			if _, still := now.units[unit]; !still {
				add(name, 0, "gpu_back", "info", unit, "")
			}
		}
		return true
	})
	return list
}

// jobsOn gives the jobs that have a unit of a node, or a share of it, in any of the views.
func jobsOn(node, resource string, index int, views ...*state.View) map[model.JobID]bool {
	out := map[model.JobID]bool{}
	for _, v := range views {
		n := v.Node(node)
		if n == nil {
			continue
		}
		for _, id := range n.Jobs {
			if j := v.Job(id); j != nil && j.Run != nil && holds(j.Run.Alloc, node, resource, index) {
				out[id] = true
			}
		}
	}
	return out
}

// holds reports whether an allocation has a unit of a node, or a share of it.
func holds(a *model.Alloc, node, resource string, index int) bool {
	if a == nil {
		return false
	}
	for i := range a.Nodes {
		if a.Nodes[i].Node != node {
			continue
		}
		for _, g := range a.Nodes[i].Gres {
			switch {
			case g.Share != nil:
				if resource == model.GPUName && int(g.Share.GPU) == index {
					return true
				}
			case g.Name == resource && g.Index.Has(index):
				return true
			}
		}
	}
	return false
}

func sortedKeys(m map[string]model.UnitOut) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// sentence gives the alert as a sentence.
func (a *alert) sentence() string {
	if a.daemon != "" {
		text := a.daemon + " " + troubleText(a.event)
		if a.reason != "" {
			text += ": " + a.reason
		}
		return text
	}
	who := "node " + hostlist.Compress(a.nodes)
	if a.gres != "" {
		who = a.gres + " of " + who
	}
	text := who + " is " + map[string]string{"node_down": "down", "node_drained": "drained",
		"node_back": "back in service", "gpu_fault": "out of service",
		"gpu_drained": "drained", "gpu_foreign_use": "in use by processes that no job started",
		"gpu_back": "back in service"}[a.event]
	if a.reason != "" {
		text += ": " + a.reason
	}
	if a.jobs > 0 {
		text += fmt.Sprintf(" (%d jobs had resources there)", a.jobs)
	}
	return text
}

// runAlert calls the program once and waits for it.
func (c *Controller) runAlert(parent context.Context, v *state.View, path string, a *alert) {
	ctx, cancel := context.WithTimeout(parent, alertTimeout)
	defer cancel()
	env := []string{progPath, "SLURM_CLUSTER_NAME=" + v.Config().Cluster, "GBATCH_ALERT=" + a.event,
		"GBATCH_ALERT_LEVEL=" + a.level,
		"GBATCH_ALERT_NODES=" + hostlist.Compress(a.nodes), "GBATCH_ALERT_GRES=" + a.gres,
		"GBATCH_ALERT_REASON=" + plain.Line(a.reason), "GBATCH_ALERT_DAEMON=" + a.daemon,
		fmt.Sprintf("GBATCH_ALERT_JOBS=%d", a.jobs), fmt.Sprintf("GBATCH_ALERT_TIME=%d", c.now().Seconds())}
	cmd, out := program(ctx, env, path, a.event, plain.Line(a.sentence()))
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) || parent.Err() != nil {
		return
	}
	if err != nil {
		c.log.Warn("AlertProgram failed; it is not called again for this event", "program", path, "event", a.event,
			"err", err, "output", strings.TrimSpace(out.String()))
	}
}

// It is told, too, of troubles of the daemons themselves: a controller or gdbd that is lost, records that
// pile up, a controller's disk or certificate, a scheduler that completes no pass. Each is told once when it has lasted
// as long as AlertParameters say, and once when it is over. A new leader tells again of what lasts: the old one may
// have been the trouble.

const (
	certEvery    = time.Minute // between two looks at certificates
	maxCertNotes = 100
	maxTroubles  = 16 // that one controller tells of itself
	calmPct      = 80 // of a bound: below it a trouble is over
)

// trouble is something that is wrong now.
type trouble struct {
	alert
	over  string        // the event of its end
	after time.Duration // it counts when it has lasted so long
	turn  uint64        // with another one it has begun anew, unless it was told
	what  string        // tells apart those of one event that somebody may have
}

// overs are the events of troubles and of their ends.
var overs = map[string]string{"controller_lost": "controller_back", "dbd_lost": "dbd_back",
	"records_waiting": "records_sent", "records_discarded": "records_kept", "disk_full": "disk_ok",
	"disk_slow": "disk_fast", "certificate_expires": "certificate_renewed",
	"records_refused": "records_removed", "scheduler_stuck": "scheduler_back",
	"usage_near_limit": "usage_below_limit"}

// troubleWatch knows which troubles there are, and which were told.
type troubleWatch struct {
	since map[string]time.Time
	turn  map[string]uint64
	told  map[string]trouble
}

func newTroubleWatch() *troubleWatch {
	return &troubleWatch{since: map[string]time.Time{}, turn: map[string]uint64{}, told: map[string]trouble{}}
}

func (t *trouble) key() string { return t.event + " " + t.daemon + t.what }

// step takes what is wrong now, and gives the alerts of it.
func (w *troubleWatch) step(now time.Time, list []trouble) []alert {
	var out []alert
	seen := map[string]bool{}
	for _, t := range list {
		key := t.key()
		if _, ok := w.since[key]; !ok || w.turn[key] != t.turn {
			if _, told := w.told[key]; told {
				continue // it is over, and perhaps begins anew
			}
			w.since[key], w.turn[key] = now, t.turn
		}
		seen[key] = true
		if _, told := w.told[key]; !told && now.Sub(w.since[key]) >= t.after {
			w.told[key] = t
			out = append(out, t.alert)
		}
	}
	var ended []string
	for key := range w.since {
		if !seen[key] {
			ended = append(ended, key)
		}
	}
	slices.Sort(ended)
	for _, key := range ended {
		delete(w.since, key)
		delete(w.turn, key)
		if t, told := w.told[key]; told {
			delete(w.told, key)
			out = append(out, alert{event: t.over, level: "info", daemon: t.daemon})
		}
	}
	return out
}

// has reports whether a trouble was told that is not over.
func (w *troubleWatch) has(event, daemon string) bool {
	_, ok := w.told[event+" "+daemon]
	return ok
}

// watchTroubles runs on the leader until ctx ends.
func (c *Controller) watchTroubles(ctx context.Context) {
	pace := pacer{gap: alertPace}
	w, began := newTroubleWatch(), time.Now()
	for ctx.Err() == nil {
		pace.wait(ctx)
		v := c.machine.View()
		for i, a := range w.step(time.Now(), c.troubles(v, w, began, time.Now())) {
			c.log.Info("alert", "event", a.event, "level", a.level, "of", a.daemon, "reason", a.reason)
			if path := v.Config().Params.AlertProgram; path != "" && i < maxAlerts && ctx.Err() == nil {
				c.runAlert(ctx, v, path, &a)
			}
		}
	}
}

// troubles looks for all that is wrong; began is when this controller began to lead.
func (c *Controller) troubles(v *state.View, w *troubleWatch, began, now time.Time) []trouble {
	var list []trouble
	r, ship := &v.Config().Params.Alerts, &v.Config().Params.Ship
	add := func(after int64, level, event, daemon, reason string) {
		list = append(list, trouble{alert: alert{event: event, level: level, daemon: daemon, reason: reason},
			over: overs[event], after: time.Duration(after) * time.Second})
	}
	own := func(name string, all []proto.Trouble) {
		for _, t := range all[:min(len(all), maxTroubles)] {
			if overs[t.Event] != "" {
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
			if w.has(event, "gdbd") {
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
		list[len(list)-1].turn = c.passes.done.Load()
	}
	v.Wallets(func(w *price.Wallet) bool {
		if what, used, of := v.Config().Params.Price.Near(w, c.now().Seconds()); what != "" {
			add(0, "warning", "usage_near_limit", "account "+w.Account,
				fmt.Sprintf("%s of %s of its %s are used", used, of, what))
			list[len(list)-1].what = " " + what // its budget is another trouble than its credit
		}
		return true
	})
	warn := int64(v.Config().Params.Price.WarnPct)
	for _, n := range nearlimit.Of(v, c.now(), func(limit string) int64 {
		if w.has("usage_near_limit", limit) {
			return warn * calmPct / 100 // what goes up and down with each job is told once
		}
		return warn
	}) {
		add(0, "warning", "usage_near_limit", n.Limit, n.Text)
	}
	for _, cert := range c.lateCerts(v) {
		if role, _, _ := strings.Cut(cert.who, " "); role != pki.RoleCtld { // controllers tell of themselves
			add(0, "warning", "certificate_expires", cert.who, cert.text)
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
	for _, cert := range c.lateCerts(v) {
		if len(out) < maxCertNotes {
			out = append(out, cert.text)
		}
	}
	return out
}

// troubleText gives what happened to a daemon, for the sentence of an alert.
func troubleText(event string) string {
	return cmp.Or(map[string]string{"controller_lost": "is lost", "controller_back": "is back",
		"dbd_lost": "takes no records", "dbd_back": "takes records again",
		"records_waiting": "has many records waiting for it", "records_sent": "has few records waiting for it again",
		"records_discarded": "loses records", "records_kept": "loses no more records",
		"records_refused": "keeps records that gdbd refuses", "records_removed": "keeps no more records that gdbd refuses",
		"disk_full": "has a disk that is nearly full", "disk_ok": "has room on its disk again",
		"disk_slow": "has a slow disk", "disk_fast": "has a fast disk again",
		"certificate_expires": "has a certificate that expires", "certificate_renewed": "has a certificate that is valid " +
			"for long",
		"usage_near_limit": "is near its limit", "usage_below_limit": "is no longer near its limit",
		"scheduler_stuck": "completes no pass", "scheduler_back": "completes passes again"}[event], event)
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
