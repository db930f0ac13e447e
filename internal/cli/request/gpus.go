package request

import (
	"fmt"
	"strings"

	"gbatch/internal/jobtext"
	"gbatch/internal/model"
)

// The ways to ask for GPUs and other generic resources: by job, node, task and socket, and tasks by GPU. What two of
// them say together gives nodes or tasks, as in Slurm: the job's over the node's is the number of nodes, the job's or
// the node's over the task's that of tasks. One of them is then counted, the others are only shown
// (model.Needs.GresToo).

// sameGres works out what was asked for in several ways.
func (s *Submission) sameGres() error {
	sp := &s.Spec
	type kind struct{ name, typ string }
	by := map[kind]*[3]int32{} // counts by model.GresPer
	var kinds []kind
	for _, g := range sp.Gres {
		if g.Milli > 0 || g.Count == 0 {
			continue
		}
		k := kind{name: g.Name, typ: strings.ToLower(g.Type)}
		for _, o := range kinds {
			if o.name == k.name && (o.typ == "") != (k.typ == "") {
				return fmt.Errorf("%s is asked for with a type and without one: give the type each time, or never", k.name)
			}
		}
		if by[k] == nil {
			by[k] = &[3]int32{}
			kinds = append(kinds, k)
		}
		n := &by[k][g.Per]
		if *n != 0 && *n != g.Count {
			return fmt.Errorf("%s is asked for twice, %s: give one number", model.TypedName(g.Name, g.Type),
				twice(g.Per, *n, g.Count))
		}
		*n = g.Count
	}
	for _, k := range kinds {
		if err := s.together(model.TypedName(k.name, k.typ), by[k][model.PerJob], by[k][model.PerNode],
			by[k][model.PerTask]); err != nil {
			return err
		}
	}
	var counted []model.GresReq
	s.More.GresToo = nil
	for _, g := range sp.Gres {
		n := by[kind{name: g.Name, typ: strings.ToLower(g.Type)}]
		switch {
		case containsGres(counted, g) || containsGres(s.More.GresToo, g):
		case g.Milli == 0 && g.Count > 0 && (g.Per == model.PerJob && n[model.PerNode]+n[model.PerTask] > 0 ||
			g.Per == model.PerTask && n[model.PerNode] > 0):
			s.More.GresToo = append(s.More.GresToo, g)
		default:
			counted = append(counted, g)
		}
	}
	sp.Gres = counted
	return nil
}

func twice(per model.GresPer, a, b int32) string {
	return fmt.Sprintf("%d and %d %s", a, b,
		map[model.GresPer]string{model.PerJob: "for the job", model.PerNode: "on each node",
			model.PerTask: "for each task"}[per])
}

// together sets the nodes and tasks that come of counts of one resource by job, node and task; 0: not given.
func (s *Submission) together(name string, job, node, task int32) error {
	sp := &s.Spec
	if job > 0 && node > 0 {
		n := job / node
		switch {
		case job%node != 0:
			return fmt.Errorf("%d %s for the job are no multiple of %d on each node", job, name, node)
		case sp.MinNodes > 0 && (n < sp.MinNodes || n > max(sp.MinNodes, sp.MaxNodes)):
			return fmt.Errorf("%d %s for the job, %d on each node, are %d nodes: --nodes says otherwise", job, name, node, n)
		}
		sp.MinNodes, sp.MaxNodes = n, n
	}
	if job > 0 && task > 0 {
		n := job / task
		switch {
		case job%task != 0:
			return fmt.Errorf("%d %s for the job are no multiple of %d for each task", job, name, task)
		case sp.Tasks > 0 && sp.Tasks != n:
			return fmt.Errorf("%d %s for the job, %d for each task, are %d tasks: --ntasks says %d", job, name, task,
				n, sp.Tasks)
		}
		sp.Tasks = n
	}
	if node > 0 && task > 0 {
		n := node / task
		switch {
		case node%task != 0:
			return fmt.Errorf("%d %s on each node are no multiple of %d for each task", node, name, task)
		case sp.TasksPerNode > 0 && sp.TasksPerNode != n:
			return fmt.Errorf("%d %s on each node, %d for each task, are %d tasks on each: --ntasks-per-node says %d", node,
				name, task, n, sp.TasksPerNode)
		}
		sp.TasksPerNode = n
	}
	return nil
}

func (s *Submission) gpusPerSocket(v string) (err error) {
	s.More.GPUsPerSocket, err = ParseGres("gpu", v, model.PerNode)
	return err
}

// settleSockets counts GPUs that are asked for by socket among those of a node.
func (s *Submission) settleSockets() error {
	m := &s.More
	if len(m.GPUsPerSocket) == 0 {
		return nil
	}
	if m.Sockets == 0 {
		return fmt.Errorf("--gpus-per-socket needs the number of sockets on each node: give --sockets-per-node too")
	}
	for _, g := range s.Spec.Gres {
		if g.Name == "gpu" {
			return fmt.Errorf("--gpus-per-socket with --sockets-per-node=%d says already how many GPUs a node gives: leave "+
				"out --gpus, --gpus-per-node, --gpus-per-task and --gres=gpu", m.Sockets)
		}
	}
	for _, g := range m.GPUsPerSocket {
		if g.Milli > 0 {
			return fmt.Errorf("--gpus-per-socket=%s: by socket GPUs are given whole; use --gpus=%s", jobtext.PartText(g.Milli),
				jobtext.PartText(g.Milli))
		}
		g.Count = int32(min(int64(g.Count)*int64(m.Sockets), 1<<24))
		s.Spec.Gres = append(s.Spec.Gres, g)
	}
	return nil
}

// gpuTasks works out --ntasks-per-gpu: the tasks for the GPUs, or the GPUs for the tasks.
func (s *Submission) gpuTasks() error {
	sp, k := &s.Spec, s.tasksPerGPU
	if k == 0 {
		return nil
	}
	if sp.TasksPerNode > 0 {
		return fmt.Errorf("--ntasks-per-gpu and --ntasks-per-node exclude each other")
	}
	s.wish().TasksPerGPU = k
	var job, node int32
	for _, g := range sp.Gres {
		if g.Name != "gpu" {
			continue
		}
		switch g.Per {
		case model.PerJob:
			job += g.Count
		case model.PerNode:
			node += g.Count
		case model.PerTask:
			return fmt.Errorf("--ntasks-per-gpu and --gpus-per-task exclude each other")
		}
	}
	switch {
	case job > 0 && sp.Tasks == 0:
		sp.Tasks = job * k
	case job > 0 && sp.Tasks != job*k:
		return fmt.Errorf("--ntasks=%d are not %d tasks for each of %d GPUs (--ntasks-per-gpu)", sp.Tasks, k, job)
	case job > 0:
	case node > 0 && sp.Tasks == 0:
		sp.TasksPerNode = node * k
	case node > 0 && (sp.Tasks%(node*k) != 0 || sp.MinNodes > 0 && sp.Tasks != sp.MinNodes*node*k):
		return fmt.Errorf("--ntasks=%d are not %d tasks for each GPU of nodes with %d of them (--ntasks-per-gpu)",
			sp.Tasks, k, node)
	case node > 0:
		sp.MinNodes = sp.Tasks / (node * k)
		sp.MaxNodes, sp.TasksPerNode = sp.MinNodes, node*k
	case sp.Tasks > 0 && sp.Tasks%k == 0:
		sp.Gres = append(sp.Gres, model.GresReq{Name: "gpu", Count: sp.Tasks / k, Per: model.PerJob})
	case sp.Tasks > 0:
		return fmt.Errorf("--ntasks=%d is no multiple of --ntasks-per-gpu=%d", sp.Tasks, k)
	default:
		return fmt.Errorf("--ntasks-per-gpu needs GPUs or tasks: give --gpus, --gpus-per-node or --ntasks too")
	}
	return nil
}
