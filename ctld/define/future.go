package define

import (
	"slices"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// future.go is about nodes that may come: State=FUTURE. They come when their gnoded registers, or by gcontrol update
// NodeName= State=RESUME, and stay until State=FUTURE is said again, whatever the file says: as in Slurm, where the
// state of a node outlives a reconfigure.

// stateKey in NodeDef.Set says that the node has come, or was made one that may come, while the cluster ran.
const stateKey = "State"

// Come gives the command by which nodes come.
func Come(v *state.View, names []string) (*state.Define, error) {
	cmd := &state.Define{}
	for _, name := range names {
		old := v.Config().FutureNode(name)
		if old == nil {
			return nil, refuse(proto.CodeInvalidNode, "%s", name)
		}
		def := *old
		def.Future, def.FutureAt, def.Set = false, 0, said(old.Set)
		cmd.Nodes = append(cmd.Nodes, &def)
	}
	return withNodes(v.Config(), cmd)
}

// Leave gives the command by which nodes become those that may come; nil: they are.
func Leave(v *state.View, names []string) (*state.Define, error) {
	cmd := &state.Define{}
	for _, name := range names {
		if v.Config().FutureNode(name) != nil {
			continue
		}
		if err := unused(v, name); err != nil {
			return nil, err
		}
		old := v.NodeDef(name)
		if old == nil {
			return nil, refuse(proto.CodeInvalidNode, "%s", name)
		}
		def := *old
		def.Future, def.Set = true, said(old.Set)
		cmd.Future, cmd.DropNodes = append(cmd.Future, &def), append(cmd.DropNodes, name)
	}
	if len(cmd.Future) == 0 {
		return nil, nil
	}
	return withNodes(v.Config(), cmd)
}

func said(set []string) []string {
	if slices.Contains(set, stateKey) {
		return set
	}
	return append(slices.Clone(set), stateKey)
}

// unused refuses a node that has jobs or is reserved.
func unused(v *state.View, name string) error {
	if n := v.Node(name); n == nil {
		return refuse(proto.CodeInvalidNode, "%s", name)
	} else if len(n.Jobs) > 0 {
		return refuse(proto.CodeNodesBusy, "%s, by %d jobs; drain it first", name, len(n.Jobs))
	}
	resv := ""
	v.Reservations(func(r *model.Reservation) bool {
		if slices.Contains(r.Nodes, name) {
			resv = r.Name
		}
		return resv == ""
	})
	if resv != "" {
		return refuse(proto.CodeNodesBusy, "%s is in reservation %s", name, resv)
	}
	return nil
}

// keepFuture lets nodes that have come stay, and those that were made ones that may come. Dynamic ones are in no file.
func keepFuture(old, files *model.Config) error {
	moved := false
	move := func(d *model.NodeDef, from, to *[]*model.NodeDef) {
		i := slices.IndexFunc(*from, func(n *model.NodeDef) bool { return n.Name == d.Name })
		if i < 0 || !slices.Contains(d.Set, stateKey) {
			return
		}
		n := *(*from)[i]
		n.Future, n.FutureAt, n.Set = d.Future, d.FutureAt, []string{stateKey}
		*from = slices.Delete(slices.Clone(*from), i, i+1)
		*to = append(*to, &n)
		moved = true
	}
	for _, d := range old.Nodes {
		move(d, &files.Future, &files.Nodes)
	}
	for _, d := range old.Future {
		move(d, &files.Nodes, &files.Future)
		i := slices.IndexFunc(files.Future, func(n *model.NodeDef) bool { return n.Name == d.Name })
		j := slices.IndexFunc(files.Nodes, func(n *model.NodeDef) bool { return n.Name == d.Name })
		if d.Made && i < 0 && j < 0 {
			files.Future = append(files.Future, d)
		}
	}
	if !moved {
		return nil
	}
	parts, err := conf.Repartition(files)
	for _, p := range parts {
		put(files, p)
	}
	return err
}

// WithFuture gives the partitions as they would be with all nodes that may come, for lists.
func WithFuture(cfg *model.Config) []*model.Partition {
	all := *cfg
	all.Nodes, all.Future = slices.Concat(cfg.Nodes, cfg.Future), nil
	out := slices.Clone(cfg.Partitions)
	parts, err := conf.Repartition(&all)
	if err != nil {
		return out // as they are: a partition was changed by hand into what no file could say
	}
	for _, p := range parts {
		if i := slices.IndexFunc(out, func(o *model.Partition) bool { return o.Name == p.Name }); i >= 0 {
			out[i] = p
		}
	}
	return out
}
