package pool

import (
	"context"
	"log/slog"
	"runtime"
	"slices"
	"sync"

	"gbatch/internal/crash"
)

// Workers is the number of launches and ends in progress at once: their work is system calls.
func Workers() int { return max(2, runtime.NumCPU()) }

// Pool runs tasks on up to max goroutines, which exist only while there is work. do never waits: the queue is as long
// as the attempts that the tasks belong to.
type Pool struct {
	ctx context.Context
	max int
	log *slog.Logger
	wg  sync.WaitGroup

	mu      sync.Mutex
	queue   []*task
	running int
	of      map[uint32]int // tasks of DoFor that run, by user id
}

// task is one that waits or runs.
type task struct {
	do   func(context.Context)
	ctx  context.Context
	uid  uint32
	each int         // most tasks of uid that run at once; 0: it is nobody's
	stay func() bool // ends the wait for ctx's end; nil: nobody can end it
	end  func()      // of ctx
}

// New gives a pool for tasks that get ctx. Tasks that have not begun when it ends are dropped.
func New(ctx context.Context, max int, log *slog.Logger) *Pool {
	return &Pool{ctx: ctx, max: max, log: log, of: map[uint32]int{}}
}

// Do runs a task as soon as a goroutine is free. A task that somebody waits for says so itself if it panics: see Or.
func (p *Pool) Do(do func(context.Context)) { p.add(&task{do: do, ctx: p.ctx}) }

// DoFor is Do for a task of a user, of which no more than each run at once: what waits for one user's file servers and
// registries leaves goroutines to the others. leave ends the task's context. One that waits is run then, with the
// context that has ended, and takes nobody's place: it only has to say so. leave may be called at any time, and again.
func (p *Pool) DoFor(uid uint32, each int, do func(context.Context)) (leave func()) {
	t := &task{do: do, uid: uid, each: max(1, each)}
	t.ctx, t.end = context.WithCancel(p.ctx)
	t.stay = context.AfterFunc(t.ctx, func() { p.leave(t) })
	p.add(t)
	return t.end
}

func (p *Pool) add(t *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, t)
	if p.running < p.max {
		p.running++
		p.wg.Go(p.work)
	}
}

// leave runs a task that still waits, as nobody waits for it.
func (p *Pool) leave(t *task) {
	p.mu.Lock()
	i := slices.Index(p.queue, t)
	if i < 0 || p.ctx.Err() != nil {
		p.mu.Unlock()
		return
	}
	p.queue = slices.Delete(p.queue, i, i+1)
	p.wg.Go(func() { p.run(t) })
	p.mu.Unlock()
}

// next takes the first task whose user has a place; nil: there is none. p.mu is held.
func (p *Pool) next() *task {
	for i, t := range p.queue {
		if t.each > 0 && p.of[t.uid] >= t.each {
			continue
		}
		p.queue = slices.Delete(p.queue, i, i+1)
		if t.each > 0 {
			p.of[t.uid]++
		}
		return t
	}
	return nil
}

// work runs tasks. Those of users who have their places already wait for the goroutine of one of their own.
func (p *Pool) work() {
	for {
		p.mu.Lock()
		var t *task
		if p.ctx.Err() == nil {
			t = p.next()
		}
		if t == nil {
			p.running--
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		if t.stay != nil {
			t.stay()
		}
		p.run(t)
		if t.each > 0 {
			t.end()
			p.mu.Lock()
			if p.of[t.uid]--; p.of[t.uid] == 0 {
				delete(p.of, t.uid)
			}
			p.mu.Unlock()
		}
	}
}

func (p *Pool) run(t *task) {
	defer func() {
		if err := crash.Recovered(recover()); err != nil {
			p.log.Error("a task has failed, and the daemon goes on", "err", err)
		}
	}()
	t.do(t.ctx)
}

// Or calls failed if the task that defers it panics, so that whoever waits for its result gets one. The panic goes on
// to the pool.
func Or(failed func(error)) {
	if p := recover(); p != nil {
		failed(crash.Recovered(p))
		panic(p)
	}
}

// Wait returns when every task has ended. Before the call, the pool's context has ended or the last task has been
// added.
func (p *Pool) Wait() { p.wg.Wait() }
