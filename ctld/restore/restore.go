// Package restore is gctld --restore: a controller that is stopped gets the state that was saved in
// a file, on the host that saved it or on another one.
//
// What was given since then must not be given a second time: numbers of jobs, of attempts and of
// accounting records, and epochs. So the restored state begins a new era; its jobs' numbers go on
// beyond those that gdbd knows, with a margin for those that it doesn't; and the epoch follows the
// clock, which no election overtakes. What gdbd has of jobs that have not ended in the snapshot (found.go) counts: they
// don't run again after they have ended.
//
// Revocations of since then stay: the controllers keep them in a file beside the state too (package
// issue).
//
// It owns the checks before anything is changed. The directory is package store's (Plant), the
// state package state's.
package restore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"gbatch/ctld/issue"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/snapfile"
	"gbatch/internal/state"
	"gbatch/internal/store"
	"gbatch/internal/wall"
	"gbatch/internal/walltime"
)

// Options say what is restored, and where.
type Options struct {
	File    string // of gcontrol snapshot save, or a folder that a controller keeps in its snapshots
	Replace bool   // a state that is there goes into a folder beside
	NextJob uint32 // the number of the next submission; 0: it follows from the snapshot and accounting
	AnyTime bool   // this host's clock is right, though the cluster's time was less by accounting
	Revoked string // a list of revocations beside the one in PKI; "": none

	Cluster string // ClusterName
	Name    string // of this controller, one of Peers
	Peers   []store.Peer
	Dir     string // StateSaveLocation
	PKI     string
	DbdAddr string // "": there is no accounting
	DbdCopy string // "": gdbd has no copy
}

const (
	margin    = 10_000 // numbers of jobs that may have been given and not be in accounting
	perSecond = 10     // the same for each second since the snapshot, if gdbd can't be asked
	epochStep = 1 << 20
	indexStep = 1 << 20
	patience  = 3 * time.Second
	mostAhead = model.Time(60_000) // of this host's clock
)

// saved is a state from a file.
type saved struct {
	st     *state.State
	header snapfile.Header // of a snapshot that a controller keeps: Index, Epoch and SavedMS only
}

// Run carries it out. It changes nothing before all is checked. out gets sentences for a person.
func Run(ctx context.Context, o Options, out io.Writer) error {
	if _, err := os.Stat(filepath.Join(o.PKI, "ca.crt")); err != nil {
		return fmt.Errorf("there are no certificates of the cluster in PKIDir (%w): nodes would obey nobody who has others; "+
			"bring %s from a controller's host or from a backup", err, o.PKI)
	}
	in, err := loadSaved(o.File)
	if err != nil {
		return err
	}
	v := in.st.View()
	if have := v.Config().Cluster; have != o.Cluster {
		return fmt.Errorf("%s has the state of cluster '%s', and ClusterName is '%s'", o.File, have, o.Cluster)
	}
	tell := func(format string, args ...any) { _, _ = fmt.Fprintf(out, "gctld: "+format+"\n", args...) } // only words
	if err := o.othersStopped(ctx); err != nil {
		return err
	}
	now := model.Time(wall.Milli())
	has, err := o.accounting(ctx, v)
	if err == nil && !o.AnyTime && has.Now > 0 && now-has.Now > mostAhead {
		return fmt.Errorf("this host's clock is ahead: it shows %s, and by accounting the cluster's time is %s; jobs and "+
			"reservations whose time is over by this clock would end. Set the clock; if it is right, say --trust-clock",
			stampText(int64(now)), stampText(int64(has.Now)))
	}
	if err != nil && !o.AnyTime {
		tell("gdbd can't be asked for the cluster's time (%v): look at this host's clock", err)
	}
	era := &state.NewEra{Number: uint64(now.Seconds()), Restored: true}
	era.NextJob = o.nextJob(in.header.SavedMS, v.NextJob(), now, has.LastJob, err, tell)
	if era.NextJob > state.MaxJobID {
		return fmt.Errorf("the next job would be %d, and numbers end at %d; choose one with --next-job", era.NextJob,
			state.MaxJobID)
	}
	if era.Found, err = o.found(ctx, v, model.Time(in.header.SavedMS)); err != nil {
		tell("gdbd can't be asked which jobs have ended since the snapshot (%v): those that had not ended in it may "+
			"run again", err)
	}
	at := max(now, model.Time(in.header.SavedMS))
	for i := range era.Found { // this host's clock may be behind
		at = max(at, era.Found[i].Start, era.Found[i].End)
	}
	in.st.Apply(state.Command{Kind: state.KindNewEra, At: at, Body: era})
	if err := o.bringRevoked(in.st, at, tell); err != nil {
		return err
	}
	if err := in.st.Check(); err != nil {
		return fmt.Errorf("%s: its facts contradict each other: %w", o.File, err)
	}
	epoch := max(in.header.Epoch+epochStep, uint64(now))
	aside, err := store.Plant(store.Planting{Dir: o.Dir, Peers: o.Peers, Index: in.header.Index + indexStep, Term: epoch,
		Write: in.st.Freeze(), Replace: o.Replace})
	if errors.Is(err, store.ErrOccupied) {
		return fmt.Errorf("%w; --replace keeps it in a folder beside and puts the restored one in its place", err)
	}
	if err != nil {
		return err
	}
	if aside != "" {
		tell("the state that was there is in %s", aside)
	}
	v = in.st.View()
	tell("controller %s has the state of cluster %s as of %s, %s ago by this host's clock: %d jobs, %d nodes; new jobs "+
		"begin at %d, the epoch is above %d", o.Name, o.Cluster, stampText(in.header.SavedMS),
		walltime.Elapsed(max(0, int64(now)-in.header.SavedMS)/1000), v.JobCount(), len(v.Config().Nodes), v.NextJob(), epoch)
	if len(o.Peers) > 1 {
		tell("the other controllers must have an empty StateSaveLocation: start all, and they get the state from this one")
	} else {
		tell("start it")
	}
	return nil
}

// bringRevoked brings what was revoked since the snapshot into the state: what the file in PKIDir has, and the list
// that was named. Both lists are one from then on.
func (o *Options) bringRevoked(st *state.State, at model.Time, tell func(string, ...any)) error {
	path := filepath.Join(o.PKI, issue.RecordFile)
	r, err := issue.ReadRecord(path)
	none := issue.NoRecord(err)
	if none {
		r, err = &issue.Record{}, nil
	}
	if err == nil && o.Revoked != "" {
		var more *issue.Record
		if more, err = issue.ReadRecord(o.Revoked); err == nil && r.Add(more) {
			none = false
		}
	}
	if err != nil {
		return fmt.Errorf("what was revoked since the snapshot would count again: %w", err)
	}
	if r.Cluster != "" && r.Cluster != o.Cluster {
		return fmt.Errorf("%s and --revoked have what was revoked in cluster '%s', and ClusterName is '%s'", path, r.Cluster,
			o.Cluster)
	}
	if none {
		tell("warning: %s is not there: certificates and tokens that were revoked after the snapshot count again. Bring it "+
			"from another controller and name it with --revoked, or revoke them again when this one leads: gbatch cert revoke "+
			"NAME or SERIAL, and users' tokens with gcontrol token revoke (gbatch-ha(7))", path)
		return nil
	}
	apply := func(kind state.Kind, body state.Body) state.Refusal {
		return st.Apply(state.Command{Kind: kind, At: at, Body: body}).Refusal
	}
	if r.Retired(st.View()) {
		key, err := os.ReadFile(filepath.Join(o.PKI, issue.TokenFile))
		if err != nil || !r.IsKey(key) {
			if key, err = issue.NewTokenKey(); err != nil {
				return err
			}
		}
		apply(state.KindTokens, &state.Tokens{Op: state.TokenKey, Key: key})
		tell("the key of users' tokens was replaced since the snapshot: tokens that were made with the old one don't count")
	}
	certs, users := 0, 0
	for _, body := range r.Missing(st.View()) {
		kind := state.KindTokens
		switch x := body.(type) {
		case *state.Certs:
			kind = state.KindCerts
			certs += len(x.Revoked)
		case *state.Tokens:
			users += len(x.Users)
		}
		if refusal := apply(kind, body); refusal != state.OK {
			return fmt.Errorf("what was revoked since the snapshot can't be brought into the state: %s", refusal)
		}
	}
	r.Add(issue.RecordOf(st.View()))
	if err := r.Save(path); err != nil {
		return fmt.Errorf("the list of revocations: %w", err)
	}
	tell("what was revoked since the snapshot stays revoked: %d daemons or certificates, and tokens of %d users", certs,
		users)
	return nil
}

func stampText(ms int64) string { return time.UnixMilli(ms).Format("2006-01-02T15:04:05") }

// loadSaved reads a file of gcontrol snapshot save, or a snapshot that a controller keeps in StateSaveLocation.
func loadSaved(path string) (*saved, error) {
	in := &saved{st: state.New()}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		k, err := store.OpenKept(path)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(in.st.Restore(k), k.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		in.header = snapfile.Header{Index: k.Index, Epoch: k.Term, SavedMS: k.At.UnixMilli()}
		return in, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	r, err := snapfile.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	in.header = r.Header
	if err := in.st.Restore(r); err != nil {
		if _, damage := r.Check(); damage != nil {
			err = damage
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if _, err := r.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return in, nil
}

// othersStopped refuses while another controller runs with a state: the two would fight over the nodes.
func (o *Options) othersStopped(ctx context.Context) error {
	tls, err := pki.Load(o.PKI, pki.RoleCtld, o.Name)
	if err != nil {
		return fmt.Errorf("this controller's certificate: %w; gbatch cert issue makes one where the authority is", err)
	}
	dial := func(addr string, wait time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		return pki.Dial(ctx, addr, pki.ProtoRaft, tls, pki.RoleCtld)
	}
	for _, p := range o.Peers {
		if p.ID == o.Name {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, patience)
		lives, err := store.Living(ctx, dial, p)
		cancel()
		if err == nil && lives {
			return fmt.Errorf("controller %s runs and has a state, which the restored one would replace; stop it, and move its "+
				"StateSaveLocation away, before this one starts", p.ID)
		}
	}
	return nil
}

// nextJob gives the number of the next submission: next is the snapshot's, last the highest on record, if gdbd could be
// asked for it.
func (o *Options) nextJob(savedMS int64, next model.JobID, now model.Time, last model.JobID, asking error,
	tell func(string, ...any)) model.JobID {
	switch age := max(0, int64(now)-savedMS) / 1000; {
	case o.NextJob > 0:
		return model.JobID(o.NextJob)
	case o.DbdAddr != "" && asking == nil:
		return max(next, last+1) + margin
	case o.DbdAddr != "":
		tell("gdbd at %s can't be asked for the last job's number (%v); new jobs keep a distance that follows from the "+
			"snapshot's age", o.DbdAddr, asking)
		fallthrough
	default:
		return next + margin + model.JobID(min(age*perSecond, int64(state.MaxJobID/2)))
	}
}

// accounting gives what the gdbds say of this history: the highest number of a job, and the cluster's time. One answer
// is enough.
func (o *Options) accounting(ctx context.Context, v *state.View) (has proto.PutReply, err error) {
	answered := false
	for _, addr := range []string{o.DbdAddr, o.DbdCopy} {
		if addr == "" {
			continue
		}
		r, e := o.accountingAt(ctx, v, addr)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		answered = true
		has.LastJob, has.Now = max(has.LastJob, r.LastJob), max(has.Now, r.Now)
	}
	if answered {
		err = nil
	}
	return has, err
}

func (o *Options) accountingAt(ctx context.Context, v *state.View, addr string) (has proto.PutReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := o.dialDbd(ctx, addr)
	if err != nil {
		return has, err
	}
	defer func() { _ = m.Close() }() // the answer is there, or an error
	body, err := proto.Encode(&proto.Put{Cluster: v.Config().Cluster, Instance: v.Instance(), Eras: v.Eras()})
	if err != nil {
		return has, err
	}
	f, err := m.Call(ctx, proto.KindPut, body)
	if err != nil {
		return has, err
	}
	return has, proto.Decode(f.Body, &has)
}

func (o *Options) dialDbd(ctx context.Context, addr string) (*rpc.Mux, error) {
	tls, err := pki.Load(o.PKI, pki.RoleCtld, o.Name)
	if err != nil {
		return nil, err
	}
	nc, err := pki.Dial(ctx, addr, pki.ProtoRPC, tls, pki.RoleDBD)
	if err != nil {
		return nil, err
	}
	conn := rpc.Client(nc, rpc.ConnOptions{Name: "gdbd at " + addr})
	m, err := rpc.NewMux(conn)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return m, nil
}
