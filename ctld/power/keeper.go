package power

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/state"
)

const (
	pace        = 500 * time.Millisecond
	maxPrograms = 8    // that run at once
	maxBatch    = 1000 // nodes of one call of a program
	minute      = time.Minute
)

// Keeper powers nodes down and up while its controller leads.
type Keeper struct {
	View    func() *state.View
	Now     func() model.Time // the cluster's time
	Propose func(context.Context, state.Body) (state.Result, error)
	Cut     func(node string) // ends the session of a node that should be off: if it is not, it registers again
	Env     []string          // of the programs, besides the cluster's name and the nodes
	Log     *slog.Logger

	mu       sync.Mutex
	running  map[string]bool // nodes for which a program runs
	programs int
	up, down []time.Time // when nodes began to be powered up and down, in the last minute
}

// Run goes on until ctx ends, and returns when none of its programs runs any more.
func (k *Keeper) Run(ctx context.Context) {
	k.running = map[string]bool{}
	var wg sync.WaitGroup
	defer wg.Wait()
	for ctx.Err() == nil {
		k.round(ctx, &wg, time.Now())
		t := time.NewTimer(pace)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		t.Stop()
	}
}

// round does what is due now.
func (k *Keeper) round(ctx context.Context, wg *sync.WaitGroup, clock time.Time) {
	v := k.View()
	r := &v.Config().Params.Power
	d := plan(v, k.Now(), clock)
	k.propose(ctx, state.FinishDown, d.finish)
	k.propose(ctx, state.GiveUpResume, d.giveUp)
	if len(d.ask) > 0 {
		k.send(ctx, &state.Powers{Nodes: d.ask, Op: state.AskPower, Want: model.PowerUp})
	}
	k.propose(ctx, state.BeginUp, k.within(&k.up, d.up, r.ResumeRate, clock))
	k.propose(ctx, state.BeginDown, k.within(&k.down, d.down, r.SuspendRate, clock))
	v = k.View() // as they are by now
	d = plan(v, k.Now(), clock)
	v.Nodes(func(n *model.Node) bool {
		if n.PowerStep() == model.PoweredDown {
			k.Cut(n.Def.Name)
		}
		return true
	})
	k.start(ctx, wg, v, state.Powers{Op: state.PowerTold, Want: model.PowerDown}, r.Suspend, d.runDown)
	k.start(ctx, wg, v, state.Powers{Op: state.PowerTold, Want: model.PowerUp}, r.Resume, d.runUp)
	k.start(ctx, wg, v, state.Powers{Op: state.ResumeFailed}, r.ResumeFail, d.runFail)
}

func (k *Keeper) propose(ctx context.Context, op state.PowerOp, nodes []string) {
	if len(nodes) > 0 {
		k.send(ctx, &state.Powers{Nodes: nodes, Op: op})
	}
}

// words say in the log what happens to nodes.
var words = map[state.PowerOp]string{state.BeginDown: "nodes are powered down", state.BeginUp: "nodes are powered up",
	state.FinishDown: "nodes are off", state.GiveUpResume: "nodes did not come up within ResumeTimeout"}

func (k *Keeper) send(ctx context.Context, c *state.Powers) {
	for list := range slices.Chunk(c.Nodes, model.MaxList) {
		one := *c
		one.Nodes = list
		res, err := k.Propose(ctx, &one)
		if err != nil {
			if ctx.Err() == nil {
				k.Log.Warn("a change of nodes' power was not noted; it is tried again", "err", err)
			}
			continue
		}
		var done []string
		for i, r := range res.Each {
			if r == state.OK {
				done = append(done, list[i])
			}
		}
		if text := words[c.Op]; text != "" && len(done) > 0 {
			k.Log.Info(text, "nodes", hostlist.CompressInOrder(done))
		}
	}
}

// within gives as many of the nodes as a rate allows now.
func (k *Keeper) within(begun *[]time.Time, nodes []string, rate int32, now time.Time) []string {
	*begun = slices.DeleteFunc(*begun, func(t time.Time) bool { return now.Sub(t) >= minute })
	if rate > 0 {
		nodes = nodes[:min(len(nodes), max(0, int(rate)-len(*begun)))]
		for range nodes {
			*begun = append(*begun, now)
		}
	}
	return nodes
}

// start runs a program for the nodes for which none runs, and notes its end by done. Without a program that is noted at
// once.
func (k *Keeper) start(ctx context.Context, wg *sync.WaitGroup, v *state.View, done state.Powers, path string,
	nodes []string) {
	if path == "" {
		done.Nodes = nodes
		k.send(ctx, &done)
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	nodes = slices.DeleteFunc(nodes, func(name string) bool { return k.running[name] })
	for batch := range slices.Chunk(nodes, maxBatch) {
		if k.programs >= maxPrograms {
			return
		}
		k.programs++
		for _, name := range batch {
			k.running[name] = true
		}
		wg.Go(func() {
			k.call(ctx, v, done, path, batch)
			k.mu.Lock()
			defer k.mu.Unlock()
			k.programs--
			for _, name := range batch {
				delete(k.running, name)
			}
		})
	}
}

// call runs a program and notes its end. Whether it has worked is seen by the nodes.
func (k *Keeper) call(ctx context.Context, v *state.View, done state.Powers, path string, nodes []string) {
	cfg := v.Config()
	env := append(slices.Clone(k.Env), "SLURM_CLUSTER_NAME="+cfg.Cluster)
	limit := leastRun
	for _, name := range nodes {
		span := cfg.PowerSpan(name)
		limit = max(limit, time.Duration(max(span.DownS, span.UpS))*time.Second)
	}
	if path == cfg.Params.Power.Resume {
		file, err := writeResumeFile(v, nodes)
		if err != nil {
			k.Log.Warn("SLURM_RESUME_FILE could not be written", "err", err)
		} else {
			defer func() { _ = os.Remove(file) }() // it may have been removed by the program
			env = append(env, "SLURM_RESUME_FILE="+file)
		}
	}
	list := hostlist.CompressInOrder(nodes)
	k.Log.Info("a program for nodes' power begins", "program", path, "nodes", list)
	text, err := run(ctx, path, nodes, env, limit)
	if ctx.Err() != nil {
		return // the next leader runs it
	}
	if text = strings.TrimSpace(text); text != "" {
		k.Log.Info("output of a program for nodes' power", "program", path, "nodes", list, "output", text)
	}
	if err != nil {
		k.Log.Error("a program for nodes' power failed", "nodes", list, "err", err)
	}
	done.Nodes = nodes
	k.send(ctx, &done)
}
