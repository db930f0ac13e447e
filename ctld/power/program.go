package power

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"gbatch/ctld/program"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/state"
)

const leastRun = 60 * time.Second

// run runs a program with the nodes' names as its argument, in a process group that is killed at the limit or with ctx.
// It gives the beginning of its output.
func run(ctx context.Context, path string, nodes []string, env []string, limit time.Duration) (string, error) {
	c := program.Call{Argv: []string{path, hostlist.CompressInOrder(nodes)}, Env: env, Limit: limit}
	err := c.Run(ctx)
	text := string(bytes.TrimSpace(c.Said.Data))
	switch {
	case errors.Is(err, program.ErrLate):
		return text, fmt.Errorf("%s was killed after %s, its time limit", path, limit)
	case err != nil:
		return text, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

// resumeFile is SLURM_RESUME_FILE: which jobs wait for the nodes. The members are Slurm's.
type resumeFile struct {
	All  string      `json:"all_nodes_resume"`
	Jobs []resumeJob `json:"jobs"`
}

type resumeJob struct {
	Extra         *string `json:"extra"`
	Features      *string `json:"features"`
	JobID         uint32  `json:"job_id"`
	NodesAlloc    string  `json:"nodes_alloc"`
	NodesResume   string  `json:"nodes_resume"`
	OverSubscribe string  `json:"oversubscribe"`
	Partition     string  `json:"partition"`
	Reservation   *string `json:"reservation"`
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// jobsFor gives the content of SLURM_RESUME_FILE for nodes that are powered up.
func jobsFor(v *state.View, nodes []string) resumeFile {
	up := make(map[string]bool, len(nodes))
	for _, name := range nodes {
		up[name] = true
	}
	f := resumeFile{All: hostlist.CompressInOrder(nodes), Jobs: []resumeJob{}}
	seen := map[model.JobID]bool{}
	for _, name := range nodes {
		n := v.Node(name)
		if n == nil {
			continue
		}
		for _, id := range n.Jobs {
			j := v.Job(id)
			if seen[id] || j == nil || j.Run == nil || j.State != model.Configuring {
				continue
			}
			seen[id] = true
			var mine []string
			for _, node := range j.Run.Alloc.NodeNames() {
				if up[node] {
					mine = append(mine, node)
				}
			}
			over := "NO"
			if !j.Run.Alone {
				over = "OK"
			}
			f.Jobs = append(f.Jobs, resumeJob{Features: orNull(j.Spec.Features), JobID: uint32(id),
				NodesAlloc: hostlist.CompressInOrder(j.Run.Alloc.NodeNames()), NodesResume: hostlist.CompressInOrder(mine),
				OverSubscribe: over, Partition: j.Run.Partition, Reservation: orNull(j.Run.Resv)})
		}
	}
	return f
}

// writeResumeFile writes SLURM_RESUME_FILE into a file that the caller removes.
func writeResumeFile(v *state.View, nodes []string) (string, error) {
	data, err := json.MarshalIndent(jobsFor(v, nodes), "", "  ")
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp("", "gbatch-resume-*.json")
	if err != nil {
		return "", err
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name()) // it is of no use
		return "", err
	}
	return f.Name(), nil
}
