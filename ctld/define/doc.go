// Package define makes the commands that change definitions of partitions and nodes while the
// cluster runs.
//
// It owns what gcontrol create, update and delete of partitions, create and delete of nodes, and
// the defining keys of update node mean, and what of that a reconfigure undoes. It doesn't own the
// keys themselves (internal/conf), the definitions as facts (internal/state), or the right to
// change them (ctld/nodeedit.go).
//
//	partition.go  create, change, remove partitions
//	node.go       dynamic nodes; features, weight and resources of nodes
//	future.go     nodes that may come: State=FUTURE
//	undo.go       what the files undo: Undo
//
// It only decides: no clock, no socket, no lock.
package define

import (
	"fmt"

	"gbatch/internal/proto"
)

// Refusal says why a change is refused.
type Refusal struct {
	Code   proto.Code
	Detail string
}

// Error gives the sentence: Slurm's words for the code, then the detail.
func (r *Refusal) Error() string { return proto.Sentence(r.Code, r.Detail) }

func refuse(code proto.Code, format string, a ...any) *Refusal {
	return &Refusal{code, fmt.Sprintf(format, a...)}
}
