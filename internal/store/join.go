package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// A voter without a log knows nothing: neither what it has promised before its disk was lost nor whether there is a
// cluster. If such voters elected each other, they would begin an empty cluster, and the one that still has the state
// would lose it to them. So a voter whose directory was empty is joining: it stands for no election and grants a vote
// only to the best of all logs, when it has seen them all. It is joining until it has all that its leader knew to be
// committed; this is noted in the log's file, so a restart in between changes nothing.
//
// A new cluster begins only on purpose: with Options.BeginFile, when all voters have answered that they are empty too.

var keyJoining = []byte("gbatch.joining")

const (
	joinPace     = 50 * time.Millisecond
	joinSayAfter = 10 * time.Second // from one remark about what a joining voter waits for to the next
	askTimeout   = time.Second
	maxJudging   = 8 // requests for votes that are judged at once
	askRounds    = 3 // in which controllers that the file does not name are found

	memberTimeout = 10 * time.Second // until raft takes a change of the members
)

// Standing is what one voter says of itself to another.
type Standing struct {
	ID        string
	Joining   bool
	Begin     bool // it was told to begin a new cluster
	LastTerm  uint64
	LastIndex uint64 // 0: it has nothing

	Members []Peer // as its log has them; none: it has no log, or is of an older version
}

// joiner holds a voter back until it has joined, and begins a new cluster.
type joiner struct {
	store   *Store
	ask     func(ctx context.Context, p Peer) (Standing, error)
	joining atomic.Bool
	begin   atomic.Bool
	judging chan struct{} // one for each request for a vote that is judged

	mu    sync.Mutex
	since time.Time // the first entries from a leader
	term  uint64    // of the latest leader
	goal  uint64    // what it knew to be committed
}

// standing gives this voter's own.
func (j *joiner) standing() Standing {
	st := Standing{ID: j.store.opts.ID, Joining: j.joining.Load(), Begin: j.begin.Load()}
	for _, m := range j.store.roll.servers() {
		st.Members = append(st.Members, Peer{string(m.ID), string(m.Address)})
	}
	stats := j.store.raft.Stats()
	for _, kind := range []string{"log", "snapshot"} {
		index, err1 := strconv.ParseUint(stats["last_"+kind+"_index"], 10, 64)
		term, err2 := strconv.ParseUint(stats["last_"+kind+"_term"], 10, 64)
		if err1 == nil && err2 == nil && index > st.LastIndex {
			st.LastIndex, st.LastTerm = index, term
		}
	}
	return st
}

// others asks all other controllers at once. missing names those without an answer. Who they are may have changed since
// this one's file was written or its log was lost, so the best log of all that answer says who has to be asked.
func (j *joiner) others(ctx context.Context) (answers []Standing, missing []string) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var best Standing
	asked := map[string]bool{j.store.opts.ID: true}
	var ask []Peer
	for _, m := range j.store.roll.all() {
		ask = append(ask, m.Peer)
	}
	for range askRounds {
		got, lost := j.askAll(ctx, ask, asked)
		answers, missing = append(answers, got...), append(missing, lost...)
		for _, a := range got {
			if len(a.Members) > 0 && (best.Members == nil || a.LastTerm > best.LastTerm ||
				a.LastTerm == best.LastTerm && a.LastIndex > best.LastIndex) {
				best = a
			}
		}
		ask = best.Members
	}
	if best.Members != nil {
		missing = slices.DeleteFunc(missing, func(id string) bool {
			return !slices.ContainsFunc(best.Members, func(p Peer) bool { return p.ID == id })
		})
	}
	return answers, missing
}

// askAll asks those who have not been asked, and notes them.
func (j *joiner) askAll(ctx context.Context, list []Peer, asked map[string]bool) (answers []Standing,
	missing []string) {
	type answer struct {
		id  string
		st  Standing
		err error
	}
	got := make(chan answer, len(list))
	n := 0
	for _, p := range list {
		if asked[p.ID] {
			continue
		}
		asked[p.ID] = true
		n++
		go func() {
			st, err := j.ask(ctx, p)
			if err == nil && st.ID != p.ID {
				err = fmt.Errorf("it says that it is %s", st.ID)
			}
			got <- answer{p.ID, st, err}
		}()
	}
	for range n {
		if a := <-got; a.err != nil {
			missing = append(missing, a.id)
		} else {
			answers = append(answers, a.st)
		}
	}
	return answers, missing
}

// mayVote reports whether a voter that knows nothing may vote for this log: all others have answered, and none has a
// better one.
func (j *joiner) mayVote(ctx context.Context, lastTerm, lastIndex uint64) bool {
	if lastIndex == 0 {
		return false
	}
	answers, missing := j.others(ctx)
	for _, a := range answers {
		if a.LastTerm > lastTerm || a.LastTerm == lastTerm && a.LastIndex > lastIndex {
			return false
		}
	}
	return len(missing) == 0
}

// heard notes what a leader sends.
func (j *joiner) heard(a *raft.AppendEntriesRequest) {
	if a.LeaderCommitIndex == 0 {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.since.IsZero() {
		j.since = time.Now()
	}
	// Requests that were on their way at the first contact may know less than this voter had promised before.
	if time.Since(j.since) >= j.store.opts.HeartbeatTimeout {
		j.term, j.goal = a.Term, max(j.goal, a.LeaderCommitIndex)
	}
}

// complete reports whether the voter has all that its leader knew to be committed. A leader knows that only when it
// has committed an entry of its own term.
func (j *joiner) complete() bool {
	j.mu.Lock()
	term, goal := j.term, j.goal
	j.mu.Unlock()
	r := j.store.raft
	if goal == 0 || r.AppliedIndex() < goal || r.CurrentTerm() != term {
		return false
	}
	var e raft.Log
	if j.store.disk.logs.GetLog(goal, &e) == nil {
		return e.Term == term
	}
	list, err := j.store.disk.snaps.List()
	return err == nil && len(list) > 0 && list[0].Index == goal && list[0].Term == term
}

// run joins or begins, and ends when that is done or ctx ends.
func (j *joiner) run(ctx context.Context) {
	s := j.store
	tick := time.NewTicker(joinPace)
	defer tick.Stop()
	said := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if j.complete() {
			if err := j.done(); err != nil {
				s.opts.Logger.Warn("this controller has all state, but could not note it", "error", err)
				continue
			}
			s.opts.Logger.Info("this controller has everything that the others have; from now on it votes")
			return
		}
		var missing []string
		if j.begin.Load() && s.raft.LastIndex() == 0 {
			var began bool
			var err error
			if began, missing, err = j.tryBegin(ctx); err != nil {
				s.opts.Logger.Warn("could not begin the new cluster; trying again", "error", err)
			} else if began {
				return
			}
		}
		if leader, _ := s.Leader(); leader == "" && time.Since(said) >= joinSayAfter {
			said = time.Now()
			var answers []Standing
			if !j.begin.Load() {
				answers, missing = j.others(ctx)
			}
			j.say(answers, missing)
		}
	}
}

// say says what a voter without state waits for.
func (j *joiner) say(answers []Standing, missing []string) {
	o := j.store.opts
	for _, a := range answers {
		if len(a.Members) > 0 && !slices.ContainsFunc(a.Members, func(p Peer) bool { return p.ID == o.ID }) {
			o.Logger.Warn("this controller has no state yet, and the cluster does not know it; it waits until it is added",
				"cluster", names(a.Members), "add", "gcontrol controllers add "+o.ID)
			return
		}
	}
	why := "none of the others has state either; if this is a new cluster, run 'gctld --begin' on one of the " +
		"controllers and start it again"
	switch {
	case len(missing) > 0 && j.begin.Load():
		why = "a new cluster begins when all controllers run, and there is no answer from " + strings.Join(missing, ", ")
	case len(missing) > 0:
		why = "no leader yet, and no answer from " + strings.Join(missing, ", ") + ": whoever has state has to be started"
	case j.begin.Load():
		why = "another controller begins the new cluster, or has state already and leads soon"
	}
	o.Logger.Warn("this controller has no state yet; it waits and does not vote", "dir", o.Dir, "why", why)
}

// tryBegin begins a new cluster if all other voters are empty and this is the first of those that were told to.
func (j *joiner) tryBegin(ctx context.Context) (began bool, missing []string, err error) {
	answers, missing := j.others(ctx)
	for _, a := range answers {
		if a.LastIndex > 0 || a.Begin && a.ID < j.store.opts.ID {
			return false, missing, nil
		}
	}
	if len(missing) > 0 {
		return false, missing, nil
	}
	// In this order: after a crash in between, start completes it.
	if err := j.done(); err != nil {
		return false, nil, err
	}
	if err := j.store.raft.BootstrapCluster(j.store.opts.voters()).Error(); err != nil {
		return false, nil, err
	}
	j.store.opts.Logger.Info("a new cluster begins", "controllers", names(j.store.opts.Peers))
	return true, nil, j.store.opts.forgetBegin()
}

// done notes that this voter may vote.
func (j *joiner) done() error {
	if err := j.store.disk.stable.Set(keyJoining, nil); err != nil {
		return err
	}
	j.joining.Store(false)
	if j.begin.Load() && j.store.raft.LastIndex() > 0 { // another one has begun
		return j.store.opts.forgetBegin()
	}
	return nil
}

func (o Options) voters() raft.Configuration {
	var c raft.Configuration
	for _, p := range o.Peers {
		c.Servers = append(c.Servers, raft.Server{ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Addr)})
	}
	return c
}

// toBegin reports whether this voter was told to begin a new cluster.
func (o Options) toBegin() bool {
	if o.BeginFile == "" {
		return o.Begin
	}
	_, err := os.Stat(o.BeginFile)
	return o.Begin || err == nil
}

func (o Options) forgetBegin() error {
	if o.BeginFile == "" {
		return nil
	}
	if err := os.Remove(o.BeginFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the mark of a new cluster: %w", err)
	}
	return syncDir(filepath.Dir(o.BeginFile))
}

// holding is raft's transport. While the voter joins, it answers requests for votes itself, unless mayVote, and lets
// none out. A snapshot whose sender falls silent is given up.
type holding struct {
	raft.Transport
	cut  func()
	j    *joiner
	in   chan raft.RPC
	stop context.CancelFunc
	ctx  context.Context
	wg   sync.WaitGroup
}

func newHolding(n *network, j *joiner) *holding {
	h := &holding{Transport: n.Transport, cut: n.cut, j: j, in: make(chan raft.RPC)}
	h.ctx, h.stop = context.WithCancel(context.Background())
	h.wg.Add(1)
	go h.pump()
	return h
}

// Consumer gives the requests of other voters that raft shall see.
func (h *holding) Consumer() <-chan raft.RPC { return h.in }

// Close ends the goroutines, not the transport, which its owner closes.
func (h *holding) Close() error {
	h.stop()
	h.wg.Wait()
	return nil
}

func (h *holding) pump() {
	defer h.wg.Done()
	for {
		select {
		case rpc := <-h.Transport.Consumer():
			if rpc.Reader != nil {
				rpc.Reader = &patient{rpc.Reader, h.cut}
			}
			if !h.j.joining.Load() {
				h.pass(rpc)
				continue
			}
			switch q := rpc.Command.(type) {
			case *raft.AppendEntriesRequest:
				h.j.heard(q)
				h.pass(rpc)
			case *raft.RequestVoteRequest:
				h.judge(rpc, q.LastLogTerm, q.LastLogIndex, &raft.RequestVoteResponse{RPCHeader: h.header(), Term: q.Term})
			case *raft.RequestPreVoteRequest:
				h.judge(rpc, q.LastLogTerm, q.LastLogIndex, &raft.RequestPreVoteResponse{RPCHeader: h.header(), Term: q.Term})
			case *raft.TimeoutNowRequest:
				rpc.Respond(nil, errJoining)
			default:
				h.pass(rpc)
			}
		case <-h.ctx.Done():
			return
		}
	}
}

// silentSender is for how long nothing may come of a snapshot that another voter sends.
const silentSender = 2 * time.Second

// patient reads a snapshot that another voter sends. raft takes part in no election meanwhile, so when the sender falls
// silent (its host has gone, or its process is stopped), the connections are cut, which ends the read.
type patient struct {
	io.Reader
	cut func()
}

func (p *patient) Read(b []byte) (int, error) {
	t := time.AfterFunc(silentSender, p.cut)
	defer t.Stop()
	return p.Reader.Read(b)
}

func (h *holding) header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(h.j.store.opts.ID)}
}

func (h *holding) pass(rpc raft.RPC) {
	select {
	case h.in <- rpc:
	case <-h.ctx.Done():
		var answer any
		if _, ok := rpc.Command.(*raft.AppendEntriesRequest); ok {
			answer = &raft.AppendEntriesResponse{} // raft's transport in memory takes no nil
		}
		rpc.Respond(answer, raft.ErrRaftShutdown)
	}
}

// judge passes a request for a vote on if the others' logs allow it, and refuses it otherwise.
func (h *holding) judge(rpc raft.RPC, lastTerm, lastIndex uint64, no any) {
	select {
	case h.j.judging <- struct{}{}:
	default:
		rpc.Respond(no, nil)
		return
	}
	h.wg.Add(1)
	go func() {
		defer h.wg.Done()
		defer func() { <-h.j.judging }()
		if h.j.mayVote(h.ctx, lastTerm, lastIndex) {
			h.pass(rpc)
		} else {
			rpc.Respond(no, nil)
		}
	}()
}

var errJoining = errors.New("this controller has no state yet and can't lead")

// elect makes raft stand for election at once instead of after a timeout. It is for a single voter.
func (h *holding) elect() {
	answer := make(chan raft.RPCResponse, 1) // nobody reads it
	h.pass(raft.RPC{Command: &raft.TimeoutNowRequest{RPCHeader: h.header()}, RespChan: answer})
}

// RequestVote asks another voter for its vote.
func (h *holding) RequestVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestVoteRequest,
	a *raft.RequestVoteResponse) error {
	if h.j.joining.Load() {
		return errJoining
	}
	return h.Transport.RequestVote(id, to, q, a)
}

// RequestPreVote asks another voter whether it would vote.
func (h *holding) RequestPreVote(id raft.ServerID, to raft.ServerAddress, q *raft.RequestPreVoteRequest,
	a *raft.RequestPreVoteResponse) error {
	if h.j.joining.Load() {
		return errJoining
	}
	return h.Transport.(raft.WithPreVote).RequestPreVote(id, to, q, a)
}
