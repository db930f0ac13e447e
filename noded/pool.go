package noded

import (
	"context"
	"runtime"
	"sync"
)

// workerCount is how many launches and ends are worked on at once: what they do is system calls.
func workerCount() int { return max(2, runtime.NumCPU()) }

// pool runs tasks on up to max goroutines, which exist only while there is work. do never waits: the queue is as long
// as the attempts that the tasks belong to.
type pool struct {
	ctx context.Context
	max int
	wg  sync.WaitGroup

	mu      sync.Mutex
	queue   []func(context.Context)
	running int
}

func newPool(ctx context.Context, max int) *pool { return &pool{ctx: ctx, max: max} }

func (p *pool) do(task func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, task)
	if p.running < p.max {
		p.running++
		p.wg.Go(p.work)
	}
}

func (p *pool) work() {
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

// wait returns when every task has ended. The pool's context has to have ended, or no task be added any more.
func (p *pool) wait() { p.wg.Wait() }
