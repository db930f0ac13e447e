package trigger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"gbatch/ctld/clock"
	"gbatch/internal/model"
	"gbatch/internal/plain"
	"gbatch/internal/state"
)

const (
	pace     = 100 * time.Millisecond
	lookPace = time.Second // at what time brings, and at the daemons
	again    = 10 * time.Second

	longest = time.Hour // from one look at what is due to the next

	maxPrograms = 64 // that run at once
	maxOthers   = 48 // of them those of users other than root and SlurmUser
	maxOfUser   = 8
	maxTries    = 30 // to find out who a user is, again apart
)

// Keeper runs the programs of triggers while its controller leads.
type Keeper struct {
	View    func() *state.View
	Changed func() <-chan struct{}
	Now     func() model.Time // the cluster's time
	Propose func(context.Context, state.Body) (state.Result, error)
	Look    func(v *state.View) *model.Daemons // how the daemons are
	Env     []string                           // of all programs, besides the cluster's name
	Log     *slog.Logger

	// As says how this process becomes a user to run a trigger's program. ErrNever is wrapped in why it never does;
	// another error may pass.
	As func(ctx context.Context, v *state.View, t *model.Trigger) (As, error)

	mu      sync.Mutex
	running map[uint32]bool
	of      map[uint32]int // running programs, by user
	others  int
	freed   chan struct{}
}

// ErrNever says that a program is not run as its user.
var ErrNever = errors.New("its program is not run")

// Run goes on until ctx ends, and returns when none of its programs runs any more.
func (k *Keeper) Run(ctx context.Context) {
	k.running, k.of, k.others, k.freed = map[uint32]bool{}, map[uint32]int{}, 0, make(chan struct{}, 1)
	var wg sync.WaitGroup
	defer wg.Wait() // programs are killed with ctx, and hold up nobody (package program)
	var looked time.Time
	for ctx.Err() == nil {
		changed := k.Changed()
		v := k.View()
		wait := time.Duration(-1)
		if v.HasTriggers() {
			if time.Since(looked) >= lookPace {
				looked = time.Now()
				if k.look(ctx, v) {
					v = k.View()
				}
			}
			wait = k.start(ctx, &wg)
			if _, watch, daemons := Timely(v, k.Now()); (watch || daemons) && (wait < 0 || wait > lookPace) {
				wait = lookPace
			}
		}
		k.rest(ctx, changed, wait)
		pause(ctx, pace)
	}
}

// rest waits until the facts change, a program has ended, or so long; negative: for ever.
func (k *Keeper) rest(ctx context.Context, changed <-chan struct{}, wait time.Duration) {
	var late <-chan time.Time
	if wait >= 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		late = t.C
	}
	select {
	case <-changed:
	case <-k.freed:
	case <-late:
	case <-ctx.Done():
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// look proposes what time has brought, and how the daemons are if that is news. It reports whether it has changed
// anything.
func (k *Keeper) look(ctx context.Context, v *state.View) (changed bool) {
	hits, _, daemons := Timely(v, k.Now())
	if len(hits) > 0 {
		changed = k.propose(ctx, &state.Triggers{Op: state.HitTriggers, Hits: hits})
	}
	if daemons {
		if now := k.Look(v); !now.Same(v.SeenDaemons()) {
			changed = k.propose(ctx, &state.Triggers{Op: state.SeeDaemons, Seen: now}) || changed
		}
	}
	return changed
}

func (k *Keeper) propose(ctx context.Context, b state.Body) bool {
	_, err := k.Propose(ctx, b)
	if err != nil && ctx.Err() == nil {
		k.Log.Warn("what triggers wait for was not noted; it is tried again", "err", err)
	}
	return err == nil
}

// start starts the programs that are due, and gives the time until the next one is; negative: none waits.
func (k *Keeper) start(ctx context.Context, wg *sync.WaitGroup) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	v := k.View() // while no end is being noted: a trigger that is not running any more is over in it
	now := k.Now()
	due, next := Due(v, now)
	for _, t := range due {
		other := t.UID != 0 && t.UID != v.Config().Params.SlurmUID
		if k.running[t.ID] || len(k.running) >= maxPrograms || other && k.others >= maxOthers || k.of[t.UID] >= maxOfUser {
			continue
		}
		k.running[t.ID] = true
		k.of[t.UID]++
		if other {
			k.others++
		}
		wg.Go(func() {
			k.call(ctx, v, t)
			k.mu.Lock()
			defer k.mu.Unlock()
			delete(k.running, t.ID)
			if k.of[t.UID]--; k.of[t.UID] == 0 {
				delete(k.of, t.UID)
			}
			if other {
				k.others--
			}
			select {
			case k.freed <- struct{}{}:
			default:
			}
		})
	}
	if next == 0 {
		return -1
	}
	return clock.Until(next, now, longest)
}

// call runs a trigger's program and notes that it has run, well or not.
func (k *Keeper) call(ctx context.Context, v *state.View, t *model.Trigger) {
	as, err := k.As(ctx, v, t)
	for tries := 1; err != nil && !errors.Is(err, ErrNever) && tries < maxTries; tries++ {
		if pause(ctx, again); ctx.Err() != nil {
			return
		}
		as, err = k.As(ctx, v, t)
	}
	said, why := "", ""
	if err != nil {
		why = fmt.Sprintf("%.200s", plain.Line(err.Error()))
	} else {
		k.Log.Info("a trigger's program begins", "trigger", t.ID, "uid", t.UID, "program", t.Program, "what",
			fmt.Sprintf("%.200s", What(t)))
		said, err = run(ctx, t, as, k.environ(v, t))
	}
	if ctx.Err() != nil {
		return // the next leader runs it
	}
	if err != nil {
		k.Log.Warn("a trigger's program failed", "trigger", t.ID, "uid", t.UID, "program", t.Program, "err", err,
			"output", said)
	}
	for ctx.Err() == nil {
		_, err := k.Propose(ctx, &state.Triggers{Op: state.RanTriggers, Ran: []state.TriggerRan{{ID: t.ID, Gen: v.Gen(),
			Why: why}}})
		if err == nil {
			return
		}
		pause(ctx, lookPace)
	}
}
