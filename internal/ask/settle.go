package ask

import (
	"fmt"
	"reflect"
	"strings"

	"gbatch/internal/model"
)

// Draft is what somebody says of a job, option by option. Settle makes of it what the controller is asked for.
//
// There are several ways to ask for GPUs and other generic resources: by job, node, task and socket, and tasks by GPU.
// What two of them say together gives nodes or tasks, as in Slurm: the job's over the node's is the number of nodes,
// the job's or the node's over the task's that of tasks. One of them is then counted, the others are only shown
// (model.Needs.GresToo).
type Draft struct {
	Spec        model.Spec
	More        model.Needs // becomes Spec.More where it says anything
	TasksPerGPU int32
	PerTask     PerTask
	Elastic     ElasticWish
}

// Settle makes the parts agree, or refuses them.
func (d *Draft) Settle() error {
	sp, m := &d.Spec, &d.More
	if sp.TasksPerNode > 0 && sp.Tasks > 0 && sp.MinNodes == 0 {
		sp.MinNodes = (sp.Tasks + sp.TasksPerNode - 1) / sp.TasksPerNode
		sp.MaxNodes = sp.MinNodes
	}
	for _, step := range [...]func() error{d.perTask, d.sameGres, d.gpuTasks, d.shares, d.sockets, d.index,
		d.elastic} {
		if err := step(); err != nil {
			return err
		}
	}
	if m.Reboot { // nobody else's job can be on the nodes
		sp.Exclusive, m.Share = true, false
	}
	if m.ExclusiveUser && sp.Exclusive {
		m.ExclusiveUser = false // nobody at all is on its nodes
	}
	if !reflect.DeepEqual(*m, model.Needs{}) {
		sp.More = m
	}
	return Check(sp)
}

// Binding gives what is said of the tasks of the job's steps, to be written to.
func (d *Draft) Binding() *model.BindWish {
	if d.More.Bind == nil {
		d.More.Bind = &model.BindWish{}
	}
	return d.More.Bind
}

// Stated gives what is said that decides nothing, to be written to.
func (d *Draft) Stated() *model.Stated {
	if d.More.Stated == nil {
		d.More.Stated = &model.Stated{}
	}
	return d.More.Stated
}

// perTask takes what --tres-per-task says.
func (d *Draft) perTask() (err error) {
	sp := &d.Spec
	if n := d.PerTask.CPUs; n > 0 && sp.CPUsPerTask > 0 && sp.CPUsPerTask != n {
		return refuse(Request, "--cpus-per-task=%d and --tres-per-task=cpu=%d say different things: give one of them",
			sp.CPUsPerTask, n)
	} else if n > 0 {
		sp.CPUsPerTask = n
	}
	sp.Gres, err = d.PerTask.AddTo(sp.Gres)
	return err
}

// sameGres works out what was asked for in several ways.
func (d *Draft) sameGres() error {
	sp := &d.Spec
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
				return refuse(Request, "%s is asked for with a type and without one: give the type each time, or never", k.name)
			}
		}
		if by[k] == nil {
			by[k] = &[3]int32{}
			kinds = append(kinds, k)
		}
		n := &by[k][g.Per]
		if *n != 0 && *n != g.Count {
			return refuse(Request, "%s is asked for twice, %s: give one number", model.TypedName(g.Name, g.Type),
				twice(g.Per, *n, g.Count))
		}
		*n = g.Count
	}
	for _, k := range kinds {
		n := by[k]
		err := d.together(model.TypedName(k.name, k.typ), n[model.PerJob], n[model.PerNode], n[model.PerTask])
		if err != nil {
			return err
		}
	}
	var counted []model.GresReq
	d.More.GresToo = nil
	for _, g := range sp.Gres {
		n := by[kind{name: g.Name, typ: strings.ToLower(g.Type)}]
		switch {
		case containsGres(counted, g) || containsGres(d.More.GresToo, g):
		case g.Milli == 0 && g.Count > 0 && (g.Per == model.PerJob && n[model.PerNode]+n[model.PerTask] > 0 ||
			g.Per == model.PerTask && n[model.PerNode] > 0):
			d.More.GresToo = append(d.More.GresToo, g)
		default:
			counted = append(counted, g)
		}
	}
	sp.Gres = counted
	return nil
}

func twice(per model.GresPer, a, b int32) string {
	return fmt.Sprintf("%d and %d %s", a, b, [...]string{model.PerJob: "for the job", model.PerNode: "on each node",
		model.PerTask: "for each task"}[per])
}

// together sets the nodes and tasks that come of counts of one resource by job, node and task; 0: not given.
func (d *Draft) together(name string, job, node, task int32) error {
	sp := &d.Spec
	if job > 0 && node > 0 {
		n, most := job/node, max(sp.MinNodes, sp.MaxNodes)
		switch {
		case job < node:
			return contradict(name, orderOfGPUs, "%d %s for the job are less than %d on each node", job, name, node)
		case job%node != 0:
			return contradict(name, notValid+", --gpus is not multiple of --gres=gpu/--gpus-per-node",
				"%d %s for the job are no multiple of %d on each node", job, name, node)
		case sp.MinNodes > 0 && (n < sp.MinNodes || n > most):
			return contradict(name, notValid+fmt.Sprintf(". Based on --gpu and --gres=gpu/--gpus-per-node required nodes (%d) "+
				"doesn't fall between min_nodes (%d) and max_nodes (%d) boundaries", n, sp.MinNodes, most),
				"%d %s for the job, %d on each node, are %d nodes: --nodes says otherwise", job, name, node, n)
		}
		sp.MinNodes, sp.MaxNodes = n, n
	}
	if job > 0 && task > 0 {
		n := job / task
		switch {
		case job%task != 0:
			return contradict(name, notValid+", --gpus not multiple of --gpus-per-task",
				"%d %s for the job are no multiple of %d for each task", job, name, task)
		case sp.Tasks > 0 && sp.Tasks != n:
			return contradict(name, notValid+". Based on --gpus and --gpus-per-task number of requested tasks differ from "+
				"-n/--ntasks", "%d %s for the job, %d for each task, are %d tasks: --ntasks says %d", job, name, task, n, sp.Tasks)
		}
		sp.Tasks = n
	}
	if node > 0 && task > 0 {
		n := node / task
		switch {
		case node%task != 0:
			return refuse(Request, "%d %s on each node are no multiple of %d for each task", node, name, task)
		case sp.TasksPerNode > 0 && sp.TasksPerNode != n:
			return contradict(name, notValid+". Based on --gres=gpu/--gpus-per-node and --gpus-per-task requested number of "+
				"tasks per node differ from --ntasks-per-node",
				"%d %s on each node, %d for each task, are %d tasks on each: --ntasks-per-node says %d", node, name, task, n,
				sp.TasksPerNode)
		}
		sp.TasksPerNode = n
	}
	return nil
}

// What Slurm says of numbers of GPUs that contradict each other; tools search for it.
const (
	notValid    = "Failed to validate job spec"
	orderOfGPUs = "Failed to ensure --gpus >= --gres=gpu/--gpus-per-node >= --gpus-per-socket"
)

// contradict refuses numbers of a resource that contradict each other. For GPUs the refusal begins with Slurm's words.
func contradict(name, slurms, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	if base, _, _ := strings.Cut(name, ":"); base == model.GPUName {
		text = slurms + ": " + text
	}
	return refuse(Request, "%s", text)
}

// maxGPUTasks bounds the tasks that --ntasks-per-gpu makes of GPUs; MaxTasksPerNode and the cluster's size bound them
// further.
const maxGPUTasks = 1 << 30

// gpuTasks works out --ntasks-per-gpu: the tasks for the GPUs, or the GPUs for the tasks.
func (d *Draft) gpuTasks() error {
	sp, k := &d.Spec, d.TasksPerGPU
	if k == 0 {
		return nil
	}
	if sp.TasksPerNode > 0 {
		return refuse(Request, "--ntasks-per-gpu and --ntasks-per-node exclude each other")
	}
	d.Binding().TasksPerGPU = k
	var jobs, nodes int64 // GPUs of the job, and of each node
	for _, g := range sp.Gres {
		if g.Name != model.GPUName {
			continue
		}
		switch g.Per {
		case model.PerJob:
			jobs += int64(g.Count)
		case model.PerNode:
			nodes += int64(g.Count)
		case model.PerTask:
			return refuse(Request, "--ntasks-per-gpu and --gpus-per-task exclude each other")
		}
	}
	if gpus := max(jobs, nodes); gpus > maxGPUTasks/int64(k) {
		return refuse(Request, "--ntasks-per-gpu=%d of %d GPUs are more than %d tasks; ask for fewer GPUs, or fewer tasks "+
			"for each", k, gpus, maxGPUTasks)
	}
	job, node := int32(jobs), int32(nodes)
	switch {
	case job > 0 && sp.Tasks == 0:
		sp.Tasks = job * k
	case job > 0 && sp.Tasks != job*k:
		return refuse(Request, "--ntasks=%d are not %d tasks for each of %d GPUs (--ntasks-per-gpu)", sp.Tasks, k, job)
	case job > 0:
	case node > 0 && sp.Tasks == 0:
		sp.TasksPerNode = node * k
	case node > 0 && (sp.Tasks%(node*k) != 0 || sp.MinNodes > 0 && sp.Tasks != sp.MinNodes*node*k):
		return refuse(Request, "--ntasks=%d are not %d tasks for each GPU of nodes with %d of them (--ntasks-per-gpu)",
			sp.Tasks, k, node)
	case node > 0:
		sp.MinNodes = sp.Tasks / (node * k)
		sp.MaxNodes, sp.TasksPerNode = sp.MinNodes, node*k
	case sp.Tasks > 0 && sp.Tasks%k == 0:
		sp.Gres = append(sp.Gres, model.GresReq{Name: model.GPUName, Count: sp.Tasks / k, Per: model.PerJob})
	case sp.Tasks > 0:
		return refuse(Request, "--ntasks=%d is no multiple of --ntasks-per-gpu=%d", sp.Tasks, k)
	default:
		return refuse(Request, "--ntasks-per-gpu needs GPUs or tasks: give --gpus, --gpus-per-node or --ntasks too")
	}
	return nil
}

func (d *Draft) shares() error { return PartsByNode(&d.Spec) }

// PartsByNode makes of parts of GPUs what the controller knows: they are counted by node, and a part of a GPU for the
// whole job is on one node. sp.Gres is replaced, not edited.
func PartsByNode(sp *model.Spec) error {
	var list []model.GresReq
	for i, g := range sp.Gres {
		if g.Milli == 0 {
			continue
		}
		part := PartText(g.Milli)
		switch g.Per {
		case model.PerTask:
			return refuse(Request, "--gpus-per-task=%s: a job's shares are of one GPU on each node; use --gpus=%[1]s for the "+
				"job, or --gpus-per-node=%[1]s", part)
		case model.PerJob:
			if sp.MaxNodes > 1 {
				return refuse(Request, "--gpus=%s is part of one GPU, and --nodes asks for several nodes; use "+
					"--gpus-per-node=%[1]s", part)
			}
			sp.MinNodes, sp.MaxNodes = 1, 1
		}
		if list == nil {
			list = append(list, sp.Gres...)
		}
		list[i].Per = model.PerNode
	}
	if list != nil {
		sp.Gres = list
	}
	return nil
}

// sockets counts GPUs that are asked for by socket among those of a node.
func (d *Draft) sockets() error {
	m := &d.More
	if len(m.GPUsPerSocket) == 0 {
		return nil
	}
	for _, g := range d.Spec.Gres {
		if g.Name == model.GPUName {
			return besideSockets(m)
		}
	}
	for _, g := range m.GPUsPerSocket {
		g.Count = int32(min(int64(g.Count)*int64(m.Sockets), maxSocketGPUs))
		if g.Count > 0 {
			d.Spec.Gres = append(d.Spec.Gres, g)
		}
	}
	return nil
}

// index counts GPUs that are asked for by number.
func (d *Draft) index() error {
	m := &d.More
	if m.GPUIndex.Empty() {
		return nil
	}
	for _, g := range d.Spec.Gres {
		if g.Name == model.GPUName && g.Count > 0 {
			return nil // Check compares
		}
	}
	d.Spec.Gres = append(d.Spec.Gres, model.GresReq{Name: model.GPUName, Count: int32(m.GPUIndex.Count())})
	return nil
}
