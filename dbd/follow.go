package dbd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"gbatch/dbd/backup"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// This file owns what one of two gdbds does about the other one: the first, AccountingStorageHost, and its copy,
// AccountingStorageBackupHost. Both have the same records because the controllers send every record to both, under the
// same numbers and in the same order; neither writes anything that is not from there. So whoever lacks something lacks
// the end of it, and gets it from the controllers. Where the controllers have it no longer, the whole database is
// copied from the other gdbd, by its backup.
//
// The first one answers questions only while the other one has nothing that it lacks; otherwise who asks goes to the
// other one. The copy answers whatever it is asked, and says that it is the copy: it is asked only when the first does
// not answer.

const (
	// lookEvery is between two looks at the other gdbd, and lookWait how long one may take.
	lookEvery = time.Second
	lookWait  = 2 * time.Second
	lookTries = 3
	// lookOld is the age from which a look says nothing: this daemon was stopped, or its machine was.
	lookOld = 4 * time.Second
	// quiet is for how long controllers may send nothing before the copy's answers say so.
	quiet = 10 * time.Second
	// copyPace is between two tries to get the whole database.
	copyPace = 5 * time.Second
)

const (
	fetchedName = fileName + ".fetched"
	beforeName  = fileName + ".before-copy"
)

// follower looks at the other gdbd.
type follower struct {
	*Daemon
	ask *Admin

	begun time.Time
	put   atomic.Int64 // when a controller was last heard, after begun
	last  atomic.Pointer[look]
	next  atomic.Pointer[chan struct{}] // closed by the next look

	lacks atomic.Pointer[error] // why the whole database is wanted; nil: it is not
	said  string                // what was last logged about it
}

// look is what the other gdbd had at one moment.
type look struct {
	at     time.Time
	err    error // it does not answer
	has    map[seriesName]position
	lacked uint64 // numbers of records that it had and this one had not
}

type seriesName struct {
	cluster  string
	instance uint64
}

// position is how far a history is on record.
type position struct{ era, seq uint64 }

func (p position) before(q position) bool { return p.era < q.era || p.era == q.era && p.seq < q.seq }

func newFollower(d *Daemon) *follower {
	f := &follower{Daemon: d, begun: time.Now(),
		ask: &Admin{Dir: d.opts.Dir, Addr: d.opts.Other, PKI: d.opts.PKI, Cluster: d.opts.Cluster, silence: lookWait}}
	first := make(chan struct{})
	f.next.Store(&first)
	return f
}

// run looks at the other gdbd until ctx ends. It gives true when the other one's database is to take the place of this
// one's.
func (f *follower) run(ctx context.Context) bool {
	var tried time.Time
	for ctx.Err() == nil {
		f.look(ctx)
		if why := f.lacks.Load(); why != nil && time.Since(tried) >= copyPace {
			tried = time.Now()
			err := f.fetch(ctx)
			if err == nil {
				return true
			}
			if text := err.Error(); ctx.Err() == nil && text != f.said {
				f.said = text
				f.opts.Logger.Error("the accounting database of the other gdbd can't be copied", "of", f.opts.Other, "why",
					*why, "err", err)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(lookEvery):
		}
	}
	return false
}

// state asks the other gdbd for its histories, and says when. If this process was stopped meanwhile, the answer is old,
// or the time to wait is over before it can be read, which says nothing about the other one: it is asked again.
func (f *follower) state(ctx context.Context) (reply *proto.DbdReply, at time.Time, err error) {
	for range lookTries {
		at = time.Now()
		bound, cancel := context.WithTimeout(ctx, lookWait)
		reply, err = f.ask.State(bound)
		cancel()
		if ctx.Err() != nil || time.Since(at) < lookWait+lookEvery {
			break
		}
	}
	return reply, at, err
}

// look asks the other gdbd what it has.
func (f *follower) look(ctx context.Context) {
	reply, at, err := f.state(ctx)
	n := &look{at: at, err: err, has: map[seriesName]position{}}
	own := f.positions()
	if err == nil {
		for i := range reply.Series {
			s := &reply.Series[i]
			n.has[seriesName{s.Cluster, s.Instance}] = position{s.Era, s.Seq}
		}
	}
	then := n.has // records arrive at one earlier than at the other: only what it had a look ago counts
	before := f.last.Load()
	if before != nil && before.err == nil && n.at.Sub(before.at) < lookOld {
		then = before.has
	}
	for name, has := range then {
		if mine := own[name]; mine.era < has.era {
			n.lacked += max(has.seq, 1)
		} else if mine.before(has) {
			n.lacked += has.seq - mine.seq
		}
	}
	if err == nil && before != nil && before.err == nil && len(own) == 0 && len(before.has) > 0 {
		f.want(errors.New("there are no records here"))
	}
	f.last.Store(n)
	done := make(chan struct{})
	close(*f.next.Swap(&done))
}

// positions gives how far each history is on record here.
func (f *follower) positions() map[seriesName]position {
	out := map[seriesName]position{}
	list, err := f.db.standing()
	if err != nil {
		return out // the log has it
	}
	for _, s := range list {
		out[seriesName{s.Cluster, s.Instance}] = position{s.Era, s.Seq}
	}
	return out
}

// heard notes that a controller has brought or asked for records.
func (f *follower) heard() {
	if f != nil {
		f.put.Store(int64(time.Since(f.begun)))
	}
}

// want asks for a copy of the whole database of the other gdbd; nil: there is no need to any more.
func (f *follower) want(why error) {
	if why == nil {
		f.lacks.Store(nil)
		return
	}
	if f.lacks.CompareAndSwap(nil, &why) {
		f.opts.Logger.Warn("the accounting database of the other gdbd is wanted", "of", f.opts.Other, "why", why)
	}
}

// ready gives the error with which a question is sent to the other gdbd, or nil.
func (f *follower) ready(ctx context.Context) error {
	if f == nil || f.opts.Copy {
		return nil
	}
	next := f.next.Load()
	l := f.last.Load()
	if l == nil || time.Since(l.at) > lookOld {
		select {
		case <-*next:
		case <-ctx.Done():
			return ctx.Err()
		}
		l = f.last.Load()
	}
	if l.err != nil || l.lacked == 0 {
		return nil
	}
	return rpc.Errorf(proto.CodeNotHere, "this accounting daemon lacks %d records that the other one at %s has, and "+
		"gets them just now", l.lacked, f.opts.Other)
}

// note is what the copy says with each answer.
func (f *follower) note() string {
	if f == nil || !f.opts.Copy {
		return ""
	}
	text := fmt.Sprintf("the accounting daemon at %s does not answer; these records are its copy's, %s", f.opts.Other,
		f.opts.Name)
	put := time.Duration(f.put.Load())
	if ago := time.Since(f.begun) - put; put == 0 {
		text += ", which has not heard of a controller since it started"
	} else if ago > quiet {
		text += fmt.Sprintf(", which last heard of a controller %v ago", ago.Round(time.Second))
	}
	return text
}

// fetch copies the database of the other gdbd to a file beside this one's, if that one has all that this one has.
func (f *follower) fetch(ctx context.Context) error {
	there := *f.ask
	there.silence = maxSilence
	state, err := there.State(ctx)
	if err != nil {
		return err
	}
	own := f.positions()
	if err := f.covers(own, state); err != nil {
		return err
	}
	to := filepath.Join(f.opts.Dir, fetchedName)
	err = writeOut(to, filepath.Join(f.opts.Dir, fileName), func(w io.Writer) error { return there.fetch(ctx, w) })
	if err != nil {
		return err
	}
	b, err := backup.Open(to)
	if err != nil {
		return err
	}
	f.opts.Logger.Info("the accounting database of the other gdbd was copied", "of", f.opts.Other, "jobs", b.Header.Jobs,
		"bytes", b.Header.Bytes)
	return b.Close()
}

// covers reports whether the other gdbd has every record that is here.
func (f *follower) covers(own map[seriesName]position, there *proto.DbdReply) error {
	if len(there.Series) == 0 {
		return errors.New("it has no records either")
	}
	has := map[seriesName]position{}
	for i := range there.Series {
		s := &there.Series[i]
		has[seriesName{s.Cluster, s.Instance}] = position{s.Era, s.Seq}
	}
	for name, mine := range own {
		if has[name].before(mine) {
			return fmt.Errorf("it has records of cluster %s up to number %d only, and there are some up to %d here",
				name.cluster, has[name].seq, mine.seq)
		}
	}
	mine, err := f.db.holes()
	if err != nil {
		return err
	}
	for _, h := range there.Holes {
		at := own[seriesName{h.Cluster, h.Instance}]
		if h.From > at.seq {
			continue
		}
		known := false
		for _, m := range mine {
			known = known || m.Cluster == h.Cluster && m.Instance == h.Instance && m.From <= h.From &&
				m.To >= min(h.To, at.seq)
		}
		if !known {
			return fmt.Errorf("it lacks records %d to %d of cluster %s for good, which are here", h.From, h.To, h.Cluster)
		}
	}
	return nil
}

// takeFetched puts the copied database in the place of this one's, which is closed. What was there is kept as
// beforeName, if there were records in it.
func (f *follower) takeFetched() error {
	from := filepath.Join(f.opts.Dir, fetchedName)
	r, err := RestoreBackup(from, f.opts.Dir, "", f.opts.Now(), nil)
	if err != nil {
		return fmt.Errorf("taking the accounting database of the other gdbd at %s: %w", f.opts.Other, err)
	}
	kept := filepath.Join(f.opts.Dir, beforeName)
	if r.Kept != "" {
		if err := os.Rename(r.Kept, kept); err != nil {
			return err
		}
	}
	f.opts.Logger.Warn("the accounting database of the other gdbd has taken the place of this one's", "of", f.opts.Other,
		"what was here is now", kept)
	return os.Remove(from)
}
