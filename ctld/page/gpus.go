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
	Idle                   int // held, and doing nothing
	Largest, OnNodes, Fits int // the most free ones of one node, how many nodes have as many, all free ones
	sum, read              int64
	Use                    *bar
}

// nodeGroup is nodes that look alike.
type nodeGroup struct {
	Nodes, State, Type          string
	Count                       int
	All, Held, Idle, Free, Outs int
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

// lowNow is a use under which a GPU that a job holds counts as idle, percent.
const lowNow = 1

// gpus sums up all GPUs; the script paints them one by one.
func gpus(q *request) (any, error) {
	v := &gpuView{By: cmp.Or(q.r.URL.Query().Get("by"), "use"), Ways: ways()}
	kinds, groups := map[string]*gpuKind{}, map[string]*nodeGroup{}
	err := q.nodes(nil, func(i *proto.NodeInfo) {
		rows := jobtext.GPURows(i)
		if len(rows) == 0 {
			return
		}
		g, free := nodeGroup{State: jobtext.NodeStateText(i)}, map[string]int{}
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
				if l.Util >= 0 {
					kind.sum, kind.read = kind.sum+int64(l.Util), kind.read+1
				}
				if l.Util >= 0 && l.Util < lowNow {
					g.Idle++
					kind.Idle++
					v.Total.Idle++
				}
			case l.State == "idle":
				free[l.Type]++
				g.Free++
				kind.Free++
				v.Total.Free++
			}
			if l.State != "idle" && l.State != "alloc" {
				g.Outs++
				kind.Out++
				v.Total.Out++
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
var gpuStates = []string{"idle", "alloc", "reserved", "maint", "drained", "down", "fault", "foreign"}

// rack is the nodes below one switch, for the script.
type rack struct {
	Switch string     `json:"switch"`
	Nodes  []nodeData `json:"nodes"`
}

// nodeData is a node: its GPUs are [state, use or -1, index of the job or -1].
type nodeData struct {
	Name  string   `json:"n"`
	State string   `json:"s"`
	Type  string   `json:"t"`
	GPUs  [][3]int `json:"g"`
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
	err := q.nodes(nil, func(i *proto.NodeInfo) {
		d := nodeData{Name: i.Node.Def.Name, State: jobtext.NodeStateText(i)}
		rows := jobtext.GPURows(i)
		for k := range rows {
			l := rows[k].Look()
			d.Type = cmp.Or(d.Type, l.Type)
			job := -1
			if l.Job != "" && l.Job != proto.HiddenJob {
				if at, known := index[l.Job]; known {
					job = at
				} else {
					job = len(jobs)
					index[l.Job], jobs = job, append(jobs, jobData{ID: l.Job})
				}
			}
			d.GPUs = append(d.GPUs, [3]int{slices.Index(gpuStates, l.State), int(l.Util), job})
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
	if q.r.URL.Query().Get("by") == "user" && len(jobs) > 0 {
		if err := q.users(jobs, index); err != nil {
			q.failed(err)
			return
		}
	}
	q.json(map[string]any{"states": gpuStates, "racks": racks, "jobs": jobs})
}

// users adds to jobs whose they are, as far as the reader may know.
func (q *request) users(jobs []jobData, index map[string]int) error {
	var live []model.JobState
	for _, s := range model.JobStates() {
		if s.HasResources() {
			live = append(live, s)
		}
	}
	_, _, _, err := q.jobs(&proto.JobsRequest{Filter: proto.JobFilter{States: live}}, 0, func(j *model.Job) bool {
		if at, known := index[jobtext.JobID(j)]; known {
			jobs[at].User = j.Spec.User
		}
		return false
	})
	if err != nil {
		return fmt.Errorf("whose the jobs are: %w", err)
	}
	return nil
}
