package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// way is a way to colour GPUs.
type way struct{ Name, Label string }

func ways() []way {
	return []way{{"use", "Use"}, {"job", "Job"}, {"user", "User"}, {"health", "Health"}, {"fit", "Fits now"}}
}

// gpuKind sums up the GPUs of one type.
type gpuKind struct {
	Type                   string
	All, Held, Free, Out   int
	Idle                   int // held, and doing next to nothing
	Shared                 int // held in parts
	Stuck                  int // idle, and no job can get it
	Largest, OnNodes, Fits int // the most free ones of one node, how many nodes have as many, all free ones
	sum, read              int64
	Use                    *bar
}

// nodeGroup is nodes that look alike.
type nodeGroup struct {
	Nodes, State, Type          string
	Count                       int
	All, Held, Idle, Free, Outs int
	Stuck                       int
	names                       []string
}

// gpuView is the view.
type gpuView struct {
	By     string
	Ways   []way
	Kinds  []*gpuKind
	Groups []*nodeGroup
	Out    []jobtext.GPULook
	Total  gpuKind
	More   bool
	Charts []*chart
}

// gpus sums up all GPUs; the script paints them one by one.
func gpus(q *request) (any, error) {
	v := &gpuView{By: cmp.Or(q.r.URL.Query().Get("by"), "use"), Ways: ways()}
	kinds, groups := map[string]*gpuKind{}, map[string]*nodeGroup{}
	cfg := q.p.o.Cluster.Facts().Config()
	err := q.nodes(nil, func(i *proto.NodeInfo) {
		rows := jobtext.GPURows(i)
		if len(rows) == 0 {
			return
		}
		g, free := nodeGroup{State: jobtext.NodeStateText(i)}, map[string]int{}
		fit, why := fitOn(i, rows, cfg)
		for k := range rows {
			l := rows[k].Look()
			kind := kinds[l.Type]
			if kind == nil {
				kind = &gpuKind{Type: l.Type}
				kinds[l.Type] = kind
			}
			g.Type = cmp.Or(g.Type, l.Type)
			g.All++
			kind.All++
			v.Total.All++
			held := l.Job != "" // also while it is drained or faulty
			switch {
			case held:
				g.Held++
				kind.Held++
				v.Total.Held++
				if sharedText(i.Node, l.Index) != "" {
					kind.Shared++
					v.Total.Shared++
				}
				if l.Util >= 0 {
					kind.sum, kind.read = kind.sum+int64(l.Util), kind.read+1
				}
				if l.Util >= 0 && l.Util < model.IdleGPUPct {
					g.Idle++
					kind.Idle++
					v.Total.Idle++
				}
			case l.State == "idle" && fit == 0:
				g.Stuck++
				kind.Stuck++
				v.Total.Stuck++
				l.State, l.Why = "stuck", why
			case l.State == "idle":
				fit--
				free[l.Type]++
				g.Free++
				kind.Free++
				v.Total.Free++
			}
			if l.State != "idle" && l.State != "alloc" {
				if l.State != "stuck" {
					g.Outs++
					kind.Out++
					v.Total.Out++
				}
				if len(v.Out) < maxRows {
					v.Out = append(v.Out, l)
				}
			}
		}
		for typ, n := range free {
			if k := kinds[typ]; n > k.Largest {
				k.Largest, k.OnNodes = n, 1
			} else if n == k.Largest {
				k.OnNodes++
			}
		}
		key := fmt.Sprint(g)
		if groups[key] == nil {
			groups[key] = &g
			v.Groups = append(v.Groups, &g)
		}
		groups[key].names = append(groups[key].names, i.Node.Def.Name)
	})
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		if k.read > 0 {
			k.Use = barOf(k.sum/k.read, 100, "")
		}
		v.Kinds = append(v.Kinds, k)
	}
	slices.SortFunc(v.Kinds, func(a, b *gpuKind) int {
		return cmp.Or(cmp.Compare(b.All, a.All), strings.Compare(a.Type, b.Type))
	})
	for _, g := range v.Groups {
		g.Nodes, g.Count = hostlist.Compress(g.names), len(g.names)
	}
	if v.More = len(v.Groups) > maxRows; v.More {
		v.Groups = v.Groups[:maxRows]
	}
	v.Charts = q.lastDay("gpus", "gpu_util", "pending")
	return v, nil
}

// Codes of a GPU's state for the script, and their words.
var gpuStates = []string{"idle", "alloc", "reserved", "maint", "drained", "down", "fault", "foreign", "stuck"}

// rack is the nodes below one switch, for the script.
type rack struct {
	Switch string     `json:"switch"`
	Nodes  []nodeData `json:"nodes"`
}

// nodeData is a node: its GPUs are [state, use or -1, index of the job or -1], and of shared ones the jobs beside it.
type nodeData struct {
	Name   string         `json:"n"`
	State  string         `json:"s"`
	Type   string         `json:"t"`
	GPUs   [][]int        `json:"g"`
	Shares map[int]string `json:"shares,omitempty"` // how much of a shared GPU is held
}

// jobData is a job that holds GPUs.
type jobData struct {
	ID   string `json:"id"`
	User string `json:"user"`
}

// gpuData answers the script: all GPUs, by switch and node.
func (q *request) gpuData() {
	jobs, index := []jobData{}, map[string]int{}
	of := map[string]*rack{}
	var racks []*rack
	leaf := map[string]string{}
	cfg := q.p.o.Cluster.Facts().Config()
	t := cfg.Networks()[cfg.NetworkOf(nil)]
	for _, s := range t.Switches {
		for _, n := range s.Nodes {
			leaf[n] = s.Name
		}
	}
	if t.Blocks != nil {
		for _, b := range t.Blocks.List {
			for _, n := range b.Nodes {
				leaf[n] = b.Name
			}
		}
	}
	parts := map[unitOf][]int{} // where the cells of shared GPUs are
	err := q.nodes(nil, func(i *proto.NodeInfo) {
		d := nodeData{Name: i.Node.Def.Name, State: jobtext.NodeStateText(i)}
		rows := jobtext.GPURows(i)
		fit, _ := fitOn(i, rows, cfg)
		for k := range rows {
			l := rows[k].Look()
			d.Type = cmp.Or(d.Type, l.Type)
			job := -1
			if text := sharedText(i.Node, l.Index); text != "" {
				if d.Shares == nil {
					d.Shares = map[int]string{}
				}
				d.Shares[k], l.Job = text, ""
				parts[unitOf{d.Name, l.Index}] = nil
			} else if l.State == "idle" {
				if fit--; fit < 0 {
					l.State = "stuck"
				}
			}
			if l.Job != "" && l.Job != proto.HiddenJob {
				if at, known := index[l.Job]; known {
					job = at
				} else {
					job = len(jobs)
					index[l.Job], jobs = job, append(jobs, jobData{ID: l.Job})
				}
			}
			d.GPUs = append(d.GPUs, []int{slices.Index(gpuStates, l.State), int(l.Util), job})
		}
		if len(d.GPUs) == 0 {
			return
		}
		s := leaf[d.Name]
		if of[s] == nil {
			of[s] = &rack{Switch: s}
			racks = append(racks, of[s])
		}
		of[s].Nodes = append(of[s].Nodes, d)
	})
	if err != nil {
		q.failed(err)
		return
	}
	if q.r.URL.Query().Get("by") == "user" && len(jobs) > 0 || len(parts) > 0 {
		if jobs, err = q.users(jobs, index, parts); err != nil {
			q.failed(err)
			return
		}
		for _, r := range racks {
			for k := range r.Nodes {
				r.Nodes[k].sharers(parts)
			}
		}
	}
	q.json(map[string]any{"states": gpuStates, "racks": racks, "jobs": jobs, "idle": model.IdleGPUPct})
}

// unitOf is a GPU of a node.
type unitOf struct {
	node string
	gpu  int32
}

// fitOn says how many of a node's idle GPUs a job can get now.
func fitOn(i *proto.NodeInfo, rows []jobtext.GPURow, cfg *model.Config) (fit int, why string) {
	idle := 0
	for k := range rows {
		if rows[k].Look().State == "idle" {
			idle++
		}
	}
	return gettable(i.Node, idle, withGPU(cfg, i.Partitions))
}

// sharers puts the jobs of shared GPUs into their cells.
func (d *nodeData) sharers(parts map[unitOf][]int) {
	for k := range d.Shares {
		if of := parts[unitOf{d.Name, int32(k)}]; len(of) > 0 {
			d.GPUs[k] = append(d.GPUs[k][:2], of...)
		}
	}
}

// users adds to jobs whose they are, as far as the reader may know, and finds those that share GPUs.
func (q *request) users(jobs []jobData, index map[string]int, parts map[unitOf][]int) ([]jobData, error) {
	var live []model.JobState
	for _, s := range model.JobStates() {
		if s.HasResources() {
			live = append(live, s)
		}
	}
	_, _, _, err := q.jobs(&proto.JobsRequest{Filter: proto.JobFilter{States: live}}, 0, func(j *model.Job) bool {
		id := jobtext.JobID(j)
		at, known := index[id]
		eachGPU(j, func(node string, gpu int32) {
			of, shared := parts[unitOf{node, gpu}]
			if !shared || len(of) > 0 && of[len(of)-1] == at && known {
				return
			}
			if !known {
				at, known = len(jobs), true
				index[id], jobs = at, append(jobs, jobData{ID: id})
			}
			parts[unitOf{node, gpu}] = append(of, at)
		})
		if known {
			jobs[at].User = j.Spec.User
		}
		return false
	})
	if err != nil {
		return nil, fmt.Errorf("whose the jobs are: %w", err)
	}
	return jobs, nil
}
