package run

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/client"
	"gbatch/internal/conf/locate"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// find.go finds the daemon that makes a job's steps.

// sitePrograms are SrunProlog and SrunEpilog, which stand in the file that find reads.
type sitePrograms struct{ prolog, epilog string }

// find gives the daemon to ask: that of the node with the job's batch script.
func (r *run) find() (dir, node string, err error) {
	base, _, _ := strings.Cut(r.job, ".")
	refs, err := env.ParseJobRefs(base)
	if err != nil || len(refs) != 1 {
		return "", "", fmt.Errorf("Invalid job id specified: %s", r.job)
	}
	if dir, r.site.prolog, r.site.epilog, err = locate.ForSteps(r.Getenv); err != nil {
		return "", "", err
	}
	own := r.place == nil && (r.Getenv("SLURM_JOB_ID") == base || r.Getenv("SLURM_JOBID") == base)
	parent := r.rq.Parent
	if nodes, err := hostlist.Expand(r.Getenv("SLURM_JOB_NODELIST")); own && err == nil && len(nodes) > 0 {
		r.rq.Job, node = refs[0].Job, nodes[0]
	} else if r.rq.Parent = proto.StepNone; r.place != nil {
		r.rq.Job, node = r.place.ID, r.place.Run.Alloc.Nodes[0].Node
	} else if job, nodes, ok := r.ofGroup(); ok {
		r.rq.Job, node = job, nodes[0]
	} else if r.rq.Job, node, err = r.lookUp(refs[0]); err != nil {
		return "", "", err
	}
	if r.rq.Receive != nil || r.rq.Attach != nil { // the step that was named
		r.rq.Parent = parent
	}
	r.rq.Node = node
	door, err := r.door(dir, node)
	return dir, door, err
}

// door gives the name of the daemon on this host to ask: the manager of the job's steps itself or, on another host, a
// daemon that passes the request on.
func (r *run) door(dir, node string) (string, error) {
	for _, name := range []string{node, r.Getenv("SLURMD_NODENAME")} {
		if _, err := os.Stat(filepath.Join(dir, proto.StepSocket(name))); name != "" && err == nil {
			return name, nil
		}
	}
	prefix := proto.StepSocket("")
	list, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	for _, e := range list {
		if name, ok := strings.CutPrefix(e.Name(), prefix); ok && e.Type()&fs.ModeSocket != 0 {
			return name, nil
		}
	}
	return "", fmt.Errorf("Unable to create step for job %d: node %s manages its steps, and no gnoded on this host can "+
		"ask it; run gnoded here (gnoded --login on a login host)", r.rq.Job, node)
}

// lookUp asks the controller where a job runs.
func (r *run) lookUp(ref model.JobRef) (job model.JobID, node string, err error) {
	found, err := r.lookUpAll(ref)
	if err != nil {
		return 0, "", err
	}
	return found[0].ID, found[0].Run.Alloc.Nodes[0].Node, nil
}

// dial connects to the node's daemon.
func (r *run) dial(dir, node string) (*client.Steps, error) { return client.DialSteps(dir, node) }
