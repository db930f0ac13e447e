package fence

import (
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/noded/shim"
)

// Word is the first argument with which gnoded's program is this one; the second is the spool.
const Word = "gbatch-fence-verdict" // not an option: no user can mean it

const factsFile = "fence.json"

// facts are what the program has to know, as gnoded leaves it in its spool.
type facts struct {
	Node        string
	PKI         string // directory of the certificates
	Controllers []string
	Hosts       []string // of the controllers, by name and by address
	Resolved    bool     // Hosts has the addresses of all
	Witnesses   []proto.Witness
	LimitMS     int64 // SlurmdTimeout
}

// maxSent bounds the heartbeats that wait for their acknowledgement.
const maxSent = 64

// Keeper renews gshim's lease for one gnoded.
type Keeper struct {
	Node        string
	PKI         string
	Controllers []string                // addresses
	Mine        func([]string) []string // the addresses of controllers that a leader tells
	Spool       string
	Program     string           // gnoded's own, for the verdict; "": what runs is never ended for silence
	Renew       func(shim.Lease) // may not wait
	Log         *slog.Logger

	mu        sync.Mutex
	sent      []beat
	limit     time.Duration // SlurmdTimeout; 0: nobody is given up
	leased    time.Duration // the SlurmdTimeout of the lease in force
	sure      bool          // the leader acknowledges heartbeats
	heard     time.Duration // when the last acknowledged word was sent
	leads     time.Duration // when that leader had begun to hear nodes
	witnesses []proto.Witness
	written   facts
	changed   chan struct{} // closed and replaced with each acknowledgement
}

// beat is one heartbeat by its Now.
type beat struct {
	now model.Time
	at  time.Duration
}

// Sent is to be called before a heartbeat is sent.
func (k *Keeper) Sent(now model.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.sent) == maxSent {
		k.sent = slices.Delete(k.sent, 0, 1)
	}
	k.sent = append(k.sent, beat{now, shim.Uptime()})
}

// Since gives the time since a message was sent that the leader has heard, by its Now: exactly if it is one of the last
// heartbeats, else by the host's clock, which somebody may have set meanwhile. 0 if nothing was sent.
func (k *Keeper) Since(heard model.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if heard == 0 || len(k.sent) == 0 {
		return 0
	}
	last := k.sent[len(k.sent)-1]
	if at := slices.IndexFunc(k.sent, func(b beat) bool { return b.now == heard }); at >= 0 {
		last = k.sent[at]
	}
	return shim.Uptime() - last.at + time.Duration(last.now-heard)*time.Millisecond
}

// Welcomed takes a leader's answer to a Hello that was made at a moment.
func (k *Keeper) Welcomed(at time.Duration, w *proto.Welcome) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sent, k.sure = nil, w.Sure
	k.limit, k.witnesses = time.Duration(w.TimeoutS)*time.Second, w.Witnesses
	if len(w.Controllers) > 0 {
		k.Controllers = k.Mine(w.Controllers)
	}
	k.acknowledged(at, w.LeadsMS)
}

// Told takes a leader's orders: what they say of heartbeats and of SlurmdTimeout.
func (k *Keeper) Told(o *proto.Orders) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o.Rules != nil {
		k.limit = time.Duration(o.TimeoutS) * time.Second
		if len(o.Controllers) > 0 {
			before := k.Controllers
			k.Controllers = k.Mine(o.Controllers)
			if !slices.Equal(before, k.Controllers) && k.leased > 0 {
				k.write()
			}
		}
	}
	if o.Witnesses != nil {
		k.witnesses = o.Witnesses
		if k.leased > 0 {
			k.write()
		}
	}
	at := slices.IndexFunc(k.sent, func(b beat) bool { return b.now == o.Sure })
	if o.Sure == 0 || at < 0 {
		return
	}
	sent := k.sent[at].at
	k.sent = slices.Delete(k.sent, 0, at) // the same is acknowledged again after a second one of the same millisecond
	k.acknowledged(sent, o.LeadsMS)
}

// acknowledged renews the lease. Callers hold mu.
func (k *Keeper) acknowledged(sent time.Duration, leadsMS int64) {
	k.heard = max(k.heard, sent)
	k.leads = shim.Uptime() - time.Duration(leadsMS)*time.Millisecond
	if k.changed != nil {
		close(k.changed)
		k.changed = nil
	}
	l := shim.Lease{}
	k.leased = 0
	if k.sure && k.limit > 0 && k.Program != "" {
		k.write()
		k.leased = k.limit
		l = shim.Lease{Until: k.heard + k.limit - Margin(k.limit), Heard: k.heard, Ask: Ask(k.limit),
			Verdict: []string{k.Program, Word, k.Spool}}
	}
	k.Renew(l)
}

// LeaseS is the SlurmdTimeout of the lease in force, s; 0: none.
func (k *Keeper) LeaseS() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return int64(k.leased / time.Second)
}

// Retry gives the pause between two looks for a leader: short enough to be heard by one that has just begun.
func (k *Keeper) Retry(wanted time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.limit > 0 {
		return min(wanted, k.limit/6)
	}
	return wanted
}

// Silent says for how long nothing was acknowledged of what was sent; 0 where no leader says so.
func (k *Keeper) Silent() (since, limit time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.sure {
		return 0, 0
	}
	return shim.Uptime() - k.heard, k.limit
}

// Pace gives the time between two heartbeats: at least as many as the lease needs.
func (k *Keeper) Pace(wanted time.Duration) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if most := Pace(k.limit); k.sure && most > 0 {
		return min(wanted, most)
	}
	return wanted
}

// Hears waits for the acknowledgement of something that was sent at a moment or later, or for the end of stop. It says
// for how long that leader has heard nodes.
func (k *Keeper) Hears(stop <-chan struct{}, since time.Duration) (leads time.Duration, ok bool) {
	for {
		k.mu.Lock()
		if k.heard >= since {
			leads = max(shim.Uptime()-k.leads, 0)
			k.mu.Unlock()
			return leads, true
		}
		if k.changed == nil {
			k.changed = make(chan struct{})
		}
		changed := k.changed
		k.mu.Unlock()
		select {
		case <-changed:
		case <-stop:
			return 0, false
		}
	}
}

// write leaves in the spool whom to ask, where that has changed. Callers hold mu.
func (k *Keeper) write() {
	f := facts{Node: k.Node, PKI: k.PKI, Controllers: k.Controllers, Witnesses: k.witnesses,
		LimitMS: k.limit.Milliseconds()}
	if f.LimitMS == k.written.LimitMS && slices.Equal(f.Witnesses, k.written.Witnesses) &&
		slices.Equal(f.Controllers, k.written.Controllers) {
		return
	}
	f.Hosts, f.Resolved = resolve(k.Controllers)
	b, err := json.MarshalIndent(f, "", "\t")
	path := filepath.Join(k.Spool, factsFile)
	if err == nil {
		err = errors.Join(os.WriteFile(path+".new", append(b, '\n'), 0o600), os.Rename(path+".new", path))
	}
	if err != nil {
		k.Log.Error("the list of witnesses could not be written; gshim uses the previous one", "err", err)
		return
	}
	k.written = f
}
