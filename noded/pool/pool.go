package pool

import (
	"context"
	"runtime"
	"sync"
)

// Workers is the number of launches and ends in progress at once: their work is system calls.
func Workers() int { return max(2, runtime.NumCPU()) }

// Pool runs tasks on up to max goroutines, which exist only while there is work. do never waits: the queue is as long
// as the attempts that the tasks belong to.
type Pool struct {
	ctx context.Context
	max int
	wg  sync.WaitGroup

	mu      sync.Mutex
	queue   []func(context.Context)
	running int
}

func New(ctx context.Context, max int) *Pool { return &Pool{ctx: ctx, max: max} }

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
		task(p.ctx)
	}
}

// Wait returns when every task has ended. Before the call, the pool's context has ended or the last task has been
// added.
func (p *Pool) Wait() { p.wg.Wait() }
