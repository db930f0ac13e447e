// Package restore is gctld --restore: a controller that is stopped gets the state that was saved in
// a file, on the host that saved it or on another one.
//
// What was given since then must not be given a second time: numbers of jobs, of attempts and of
// accounting records, and epochs. So the restored state begins a new era; its jobs' numbers go on
// beyond those that gdbd knows, with a margin for those that it doesn't; and the epoch follows the
// clock, which no election overtakes. What gdbd has of jobs that have not ended in the snapshot (found.go) counts: they
// don't run again after they have ended.
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

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/snapfile"
	"gbatch/internal/state"
	"gbatch/internal/store"
)

// Options say what is restored, and where.
type Options struct {
	File    string // of gcontrol snapshot save, or a folder that a controller keeps in its snapshots
	Replace bool   // a state that is there goes into a folder beside
	NextJob uint32 // the number of the next submission; 0: it follows from the snapshot and accounting

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
	now := model.Time(time.Now().UnixMilli())
	era := &state.NewEra{Number: uint64(now.Seconds()), NextJob: o.nextJob(ctx, in, v, now, tell), Restored: true}
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
	tell("controller %s has the state of cluster %s as of %s: %d jobs, %d nodes; new jobs begin at %d, "+
		"the epoch is above %d",
		o.Name, o.Cluster, stampText(in.header.SavedMS), v.JobCount(), len(v.Config().Nodes), v.NextJob(), epoch)
	if len(o.Peers) > 1 {
		tell("the other controllers must have an empty StateSaveLocation: start all, and they get the state from this one")
	} else {
		tell("start it")
	}
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

// nextJob gives the number of the next submission.
func (o *Options) nextJob(ctx context.Context, in *saved, v *state.View, now model.Time,
	tell func(string, ...any)) model.JobID {
	if o.NextJob > 0 {
		return model.JobID(o.NextJob)
	}
	next, age := v.NextJob(), max(0, int64(now)-in.header.SavedMS)/1000
	if o.DbdAddr != "" {
		last, err := o.lastJob(ctx, v, o.DbdAddr)
		if o.DbdCopy != "" {
			other, oerr := o.lastJob(ctx, v, o.DbdCopy)
			if last = max(last, other); oerr == nil {
				err = nil
			}
		}
		if err == nil {
			return max(next, last+1) + margin
		}
		tell("gdbd at %s can't be asked for the last job's number (%v); new jobs keep a distance that follows from the "+
			"snapshot's age", o.DbdAddr, err)
	}
	return next + margin + model.JobID(min(age*perSecond, int64(state.MaxJobID/2)))
}

// lastJob asks a gdbd for the highest number on record of this history.
func (o *Options) lastJob(ctx context.Context, v *state.View, addr string) (model.JobID, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := o.dialDbd(ctx, addr)
	if err != nil {
		return 0, err
	}
	defer func() { _ = m.Close() }() // the answer is there, or an error
	body, err := proto.Encode(&proto.Put{Cluster: v.Config().Cluster, Instance: v.Instance(), Eras: v.Eras()})
	if err != nil {
		return 0, err
	}
	f, err := m.Call(ctx, proto.KindPut, body)
	if err != nil {
		return 0, err
	}
	var reply proto.PutReply
	err = proto.Decode(f.Body, &reply)
	return reply.LastJob, err
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
