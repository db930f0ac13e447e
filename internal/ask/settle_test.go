package ask

import (
	"fmt"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// TestSameGres: GPUs that are asked for in two ways are counted once, and nodes and tasks come of them.
func TestSameGres(t *testing.T) {
	req := func(per model.GresPer, typ string, n int32) model.GresReq {
		return model.GresReq{Name: "gpu", Type: typ, Count: n, Per: per}
	}
	job, node, task := model.PerJob, model.PerNode, model.PerTask
	for _, x := range []struct {
		spec  model.Spec
		gres  []model.GresReq
		want  string
		error string
	}{
		{model.Spec{}, []model.GresReq{req(job, "", 4), req(task, "", 2)},
			"nodes 0-0 tasks 2 per node 0, counts [2 by 2], shows [4 by 1]", ""},
		{model.Spec{Tasks: 2}, []model.GresReq{req(job, "", 4), req(task, "", 2)},
			"nodes 0-0 tasks 2 per node 0, counts [2 by 2], shows [4 by 1]", ""},
		{model.Spec{Tasks: 3}, []model.GresReq{req(job, "", 4), req(task, "", 2)}, "",
			"Failed to validate job spec. Based on --gpus and --gpus-per-task number of requested tasks " +
				"differ from -n/--ntasks: " +
				"4 gpu for the job, 2 for each task, are 2 tasks: --ntasks says 3"},
		{model.Spec{}, []model.GresReq{req(job, "", 5), req(task, "", 2)}, "",
			"Failed to validate job spec, --gpus not multiple of --gpus-per-task: " +
				"5 gpu for the job are no multiple of 2 for each task"},
		{model.Spec{}, []model.GresReq{req(node, "", 4), req(job, "", 8)},
			"nodes 2-2 tasks 0 per node 0, counts [4 by 0], shows [8 by 1]", ""},
		{model.Spec{MinNodes: 1, MaxNodes: 4}, []model.GresReq{req(node, "", 4), req(job, "", 8)},
			"nodes 2-2 tasks 0 per node 0, counts [4 by 0], shows [8 by 1]", ""},
		{model.Spec{MinNodes: 3, MaxNodes: 3}, []model.GresReq{req(node, "", 4), req(job, "", 8)}, "",
			"Failed to validate job spec. Based on --gpu and --gres=gpu/--gpus-per-node required nodes (2) " +
				"doesn't fall between min_nodes (3) and max_nodes (3) boundaries: " +
				"8 gpu for the job, 4 on each node, are 2 nodes: --nodes says otherwise"},
		{model.Spec{}, []model.GresReq{req(node, "", 4), req(job, "", 6)}, "",
			"Failed to validate job spec, --gpus is not multiple of --gres=gpu/--gpus-per-node: " +
				"6 gpu for the job are no multiple of 4 on each node"},
		{model.Spec{MinNodes: 2, MaxNodes: 2}, []model.GresReq{req(node, "", 4), req(task, "", 2)},
			"nodes 2-2 tasks 0 per node 2, counts [4 by 0], shows [2 by 2]", ""},
		{model.Spec{TasksPerNode: 4}, []model.GresReq{req(node, "", 4), req(task, "", 2)}, "",
			"Failed to validate job spec. Based on --gres=gpu/--gpus-per-node and --gpus-per-task requested " +
				"number of tasks per node differ from --ntasks-per-node: " +
				"4 gpu on each node, 2 for each task, are 2 tasks on each: --ntasks-per-node says 4"},
		{model.Spec{}, []model.GresReq{req(node, "", 3), req(task, "", 2)}, "",
			"3 gpu on each node are no multiple of 2 for each task"},
		{model.Spec{}, []model.GresReq{req(job, "", 8), req(node, "", 4), req(task, "", 2)},
			"nodes 2-2 tasks 4 per node 2, counts [4 by 0], shows [8 by 1 2 by 2]", ""},
		{model.Spec{}, []model.GresReq{req(node, "", 2), req(node, "", 2)},
			"nodes 0-0 tasks 0 per node 0, counts [2 by 0], shows []", ""},
		{model.Spec{}, []model.GresReq{req(node, "", 2), req(node, "", 3)}, "",
			"gpu is asked for twice, 2 and 3 on each node: give one number"},
		{model.Spec{}, []model.GresReq{req(job, "a100", 4), req(task, "A100", 2)},
			"nodes 0-0 tasks 2 per node 0, counts [2 by 2], shows [4 by 1]", ""},
		{model.Spec{}, []model.GresReq{req(job, "a100", 4), req(task, "", 2)}, "",
			"gpu is asked for with a type and without one: give the type each time, or never"},
		{model.Spec{}, []model.GresReq{req(node, "a100", 1), req(node, "v100", 2)},
			"nodes 0-0 tasks 0 per node 0, counts [1 by 0 2 by 0], shows []", ""},
	} {
		s := Draft{Spec: x.spec}
		s.Spec.Gres = x.gres
		short := func(list []model.GresReq) (out []string) {
			for _, g := range list {
				out = append(out, fmt.Sprintf("%d by %d", g.Count, g.Per))
			}
			return out
		}
		err := s.sameGres()
		got := fmt.Sprintf("nodes %d-%d tasks %d per node %d, counts %v, shows %v", s.Spec.MinNodes, s.Spec.MaxNodes,
			s.Spec.Tasks, s.Spec.TasksPerNode, short(s.Spec.Gres), short(s.More.GresToo))
		if err != nil {
			got = ""
		}
		if got != x.want || (err == nil) != (x.error == "") || err != nil && err.Error() != x.error {
			t.Errorf("%v %v:\n got %s %v\nwant %s %s", x.spec.MinNodes, x.gres, got, err, x.want, x.error)
		}
	}
}

// TestManyGPUTasks: --ntasks-per-gpu of very many GPUs is refused, and nothing overflows.
func TestManyGPUTasks(t *testing.T) {
	for _, per := range []model.GresPer{model.PerJob, model.PerNode} {
		for _, tasks := range []int32{0, 4} {
			d := Draft{TasksPerGPU: 4, Spec: model.Spec{Tasks: tasks,
				Gres: []model.GresReq{{Name: "gpu", Count: 1 << 30, Per: per}}}}
			if err := d.Settle(); err == nil || !strings.Contains(err.Error(), "are more than 1073741824 tasks; ask for fewer") {
				t.Errorf("GPUs per %d, %d tasks: %v", per, tasks, err)
			}
		}
	}
}
