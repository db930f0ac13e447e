package run

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
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
	own := r.place == nil && r.OwnJob() == base
	parent := r.rq.Parent
	job, nodes, told := r.toldPlace(refs[0])
	switch {
	case r.place != nil:
		r.takePlace(r.place)
		node = r.place.Run.Alloc.Nodes[0].Node
	case told:
		r.rq.Job, r.leads, node = job, refs[0].Job, nodes[0]
	default:
		found, err := r.lookUpAll(refs[0])
		if err != nil {
			return "", "", err
		}
		r.takePlace(found[0])
		node = found[0].Run.Alloc.Nodes[0].Node
	}
	if !own {
		r.rq.Parent = proto.StepNone
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

// toldPlace gives the number and the nodes of a job, or of a component, as the variables of this process have them.
func (r *run) toldPlace(ref model.JobRef) (job model.JobID, nodes []string, ok bool) {
	own, _, _ := strings.Cut(r.OwnJob(), "+")
	if ref.Tasks != nil || ref.Task != model.NoTask || own != strconv.FormatUint(uint64(ref.Job), 10) {
		return 0, nil, false
	}
	offset := max(ref.Het-1, 0)
	nodes, err := hostlist.Expand(r.nodesOf(ref.Job, offset))
	return ref.Job + model.JobID(offset), nodes, err == nil && len(nodes) > 0
}

// toldNodes gives the nodes of the step's job as the variables of this process have them, if they do.
func (r *run) toldNodes() []string {
	ref, err := env.ParseJobRef(r.job)
	if err != nil {
		return nil
	}
	_, nodes, _ := r.toldPlace(ref)
	return nodes
}

// nodesOf gives the nodes of a component of this process' job, "" if its variables don't have them. A job that is not
// heterogeneous is its own component 0.
func (r *run) nodesOf(job model.JobID, offset int32) string {
	suffix := groupInfix + strconv.Itoa(int(offset))
	_, mine, _ := strings.Cut(r.OwnJob(), "+")
	own := cmp.Or(mine, "0") == strconv.Itoa(int(offset))
	if own && r.rq.Parent == proto.StepNone { // a script's: the job may have been resized since
		return r.Getenv("SLURM_JOB_NODELIST")
	}
	if r.Getenv("SLURM_JOB_ID"+suffix) == strconv.FormatUint(uint64(job)+uint64(offset), 10) {
		return r.Getenv("SLURM_JOB_NODELIST" + suffix) // in a step, that without a suffix may be of all components
	}
	if own {
		return r.Getenv("SLURM_JOB_NODELIST")
	}
	return ""
}

// takePlace takes over which job was found.
func (r *run) takePlace(j *model.Job) {
	r.rq.Job, r.leads = j.ID, j.ID
	if j.Het != nil {
		r.leads = j.Het.ID
	}
}

// dial connects to the node's daemon.
func (r *run) dial(dir, node string) (*client.Steps, error) { return client.DialSteps(dir, node) }
