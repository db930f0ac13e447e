package noded

import (
	"fmt"
	"slices"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/greshelper"
)

// recover.go continues where the last gnoded stopped: it was killed or upgraded, or the machine lost power.
//
// The spool has the attempts of this node and the reports that are not acknowledged. gshim then gives the attempts'
// state (onLink): running ones are adopted, new ends are reported. Recovery launches nothing again; an attempt that
// gshim does not know waits until the leader repeats its order.
//
// Where all of a node was killed under the same boot, as by the restart of a container, the scripts that gshim finds
// gone were lost with the node (beforeKill): the node registers without them when their remains are cleared away.
//
// After a reboot no process is left. Ends from before are reported; the leader takes the other attempts for lost,
// because the node does not list them.

// recover reads the spool's memory into the loop. It runs before the loop does.
func (l *loop) recover() error {
	mem := &l.spool.mem
	l.began = l.now()
	if name := mem.opened.Node; name != "" && name != l.n.opts.Name {
		return fmt.Errorf("the spool %s is that of node %s; give node %s its own with --spool", l.spool.dir, name,
			l.n.opts.Name)
	}
	fresh := mem.opened.Incarnation == 0
	rebooted := mem.opened.BootID != "" && mem.opened.BootID != l.n.inv.BootID
	// Seconds since 1970, so that report numbers grow even where the spool was lost; they fit 32 bits until 2106.
	incarnation := max(mem.opened.Incarnation+1, uint32(l.now().Unix()))
	l.seq = uint64(incarnation) << 32
	l.n.instance.Store(mem.epoch.Instance)
	if err := l.spool.add(recOpened, &opened{Incarnation: incarnation, BootID: l.n.inv.BootID, Node: l.n.opts.Name},
		true); err != nil {
		return err
	}
	reports := make([]*proto.Report, 0, len(mem.reports))
	for _, r := range mem.reports {
		reports = append(reports, r)
	}
	slices.SortFunc(reports, func(a, b *proto.Report) int {
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	})
	l.out.put(reports...)
	for key, k := range mem.attempts {
		a := &attempt{key: key, rec: k.launched, phase: accepted, upTo: running}
		if k.launched != nil {
			a.since = k.launched.Since
		} else if len(k.reports) > 0 {
			a.since = k.reports[0].Since
		}
		if rebooted {
			a.origin = beforeBoot
		}
		switch r := k.launched; {
		case slices.ContainsFunc(k.reports, final) || r == nil:
			a.phase = over
		case r.Final != nil:
			a.phase = epilogue
		case !rebooted && r.prepared():
			a.phase, a.upTo = ready, ready
		case r.Late:
			a.phase = belated
		case a.inProlog():
			a.phase = interrupted
		}
		if a.phase != over && a.phase != epilogue && a.phase != ready && k.launched.Ordered &&
			l.n.scripts.Adopt(k.launched.Script) {
			a.script = k.launched.Script
		}
		l.attempts[key] = a
		if r := k.launched; r != nil && r.Order != nil {
			l.n.peers.learn(r.Order)
		}
		a.recoverSteps(k, l.n.opts.Name)
		if k.launched != nil && a.phase != over && !rebooted {
			l.programLeft(a)
		}
	}
	if l.spool.commit(); l.spool.broken != nil && fresh {
		return l.spool.broken // no job is known here
	}
	l.noteSpool()
	if len(l.attempts) > 0 {
		l.log.Info("read the spool", "attempts", len(l.attempts), "reports", len(reports), "rebooted", rebooted)
	}
	if fresh {
		return nil // gshim may run what this spool has never heard of; scripts that nobody has go with the next start
	}
	if l.spool.broken != nil {
		return nil // nothing can be removed there, or it is not known what else is left; the next start does it
	}
	if err := l.n.allocs.Sweep(func(key proto.Attempt) bool { return l.attempts[key] != nil }); err != nil {
		return err
	}
	if err := l.n.shows.Sweep(func(key proto.Attempt) bool { return l.attempts[key] != nil }); err != nil {
		return err
	}
	if err := l.n.helpers.Sweep(func(h greshelper.Attempt) bool {
		return l.attempts[proto.Attempt{Job: model.JobID(h.Job), Attempt: h.Attempt}] != nil
	}); err != nil {
		return err
	}
	// Control groups wait for what gshim lists (onLink).
	return l.n.scripts.Sweep()
}
