package pool

import (
	"context"
	"log/slog"
	"runtime"
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
	queue   []func(context.Context)
	running int
}

// New gives a pool for tasks that get ctx. Tasks that have not begun when it ends are dropped.
func New(ctx context.Context, max int, log *slog.Logger) *Pool {
	return &Pool{ctx: ctx, max: max, log: log}
}

// Do runs a task as soon as a goroutine is free. A task that somebody waits for says so itself if it panics: see Or.
func (p *Pool) Do(task func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, task)
	if p.running < p.max {
		p.running++
		p.wg.Go(p.work)
	}
}

func (p *Pool) work() {
	for {
		p.mu.Lock()
		if len(p.queue) == 0 || p.ctx.Err() != nil {
			p.running--
			p.mu.Unlock()
			return
		}
		task := p.queue[0]
		p.queue[0] = nil
		p.queue = p.queue[1:]
		p.mu.Unlock()
		p.run(task)
	}
}

func (p *Pool) run(task func(context.Context)) {
	defer func() {
		if err := crash.Recovered(recover()); err != nil {
			p.log.Error("a task has failed, and the daemon goes on", "err", err)
		}
	}()
	task(p.ctx)
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
