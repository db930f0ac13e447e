package jobenv

import (
	"slices"
	"strings"

	"gbatch/internal/model"
)

// remote.go tells a job its remote GPUs. They are not on the node: no variable that names devices names them.

// RemoteVar has the endpoints of a job's remote GPUs, one for each, if no helper says something else.
const RemoteVar = "RGPU_SERVER"

// Remote is what a job's processes on one node are told of its remote GPUs.
type Remote struct {
	Endpoints map[int]string // by the unit's number
	Given     []string       // NAME=value, from GresHelper; they take the place of RemoteVar
	Helped    bool           // there is a helper: Given counts
}

// names gives the variables that it sets.
func (r *Remote) names() []string {
	if !r.Helped {
		return []string{RemoteVar}
	}
	names := make([]string, len(r.Given))
	for i, entry := range r.Given {
		names[i], _, _ = strings.Cut(entry, "=")
	}
	return names
}

// Remotely makes e tell a job of its remote GPUs: variables of that kind that were submitted don't count.
func (e *Node) Remotely(r *Remote) {
	e.remote, e.Hidden = r, append(slices.Clone(e.Hidden), r.names()...)
}

// showRemote sets the variables of the remote GPUs in mine.
func (e *Node) showRemote(v *Vars, mine *model.NodeAlloc) {
	if e.remote == nil || !mine.Remote() {
		return
	}
	for _, entry := range e.remote.Given {
		name, value, _ := strings.Cut(entry, "=")
		v.Set(name, value)
	}
	if e.remote.Helped {
		return
	}
	var out []string
	for i := range mine.Gres {
		if g := &mine.Gres[i]; model.IsRemote(g.Name, g.Type) {
			g.Index.Each(func(k int) bool {
				if at := e.remote.Endpoints[k]; at != "" {
					out = append(out, at)
				}
				return true
			})
		}
	}
	if len(out) > 0 {
		v.Set(RemoteVar, strings.Join(out, ","))
	}
}
