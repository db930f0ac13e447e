package jobenv

import (
	"slices"
	"strings"

	"gbatch/internal/proto"
)

// torch.go has the variables that PyTorch's launcher (torchrun) gives its workers, for grun --launcher=torch.

// torchOwned are those variables.
var torchOwned = []string{"MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
	"NODE_RANK", "GROUP_RANK"}

// TorchTask gives a task's environment with the variables of PyTorch's launcher. master is host:port.
func TorchTask(env []string, nodes []proto.StepNode, here int, t *TaskView, master string) []string {
	v := Vars(slices.DeleteFunc(env, func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return slices.Contains(torchOwned, name)
	}))
	tasks := 0
	for i := range nodes {
		tasks += len(nodes[i].Ranks)
	}
	host, port := master, ""
	if i := strings.LastIndexByte(master, ':'); i >= 0 {
		host, port = strings.Trim(master[:i], "[]"), master[i+1:]
	}
	v.Set("MASTER_ADDR", host)
	v.Set("MASTER_PORT", port)
	v.Num("RANK", int64(t.Rank))
	v.Num("WORLD_SIZE", int64(tasks))
	v.Num("LOCAL_RANK", int64(t.Local))
	v.Num("LOCAL_WORLD_SIZE", int64(len(nodes[here].Ranks)))
	v.Num("NODE_RANK", int64(here))
	v.Num("GROUP_RANK", int64(here))
	return v
}
