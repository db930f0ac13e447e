package jobenv

import (
	"cmp"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// Site describes a job to the programs that a site runs around it, on its nodes and on the controllers: Prolog, Epilog,
// PrologSlurmctld, EpilogSlurmctld, MailProg. array has the shape of the job's array, and is empty where it is none. A
// job that has not run has no nodes.
//
// What these programs get of one place only, such as units and exit codes, their callers add.
func Site(v *Vars, j *model.Job, array proto.ArrayShape) {
	s := j.Spec
	more := s.Extra()
	v.Num("SLURM_JOB_ID", int64(j.ID))
	v.Num("SLURM_JOBID", int64(j.ID))
	if h := j.Het; h != nil {
		v.Num("SLURM_HET_JOB_ID", int64(h.ID))
		v.Num("SLURM_HET_JOB_OFFSET", int64(h.Offset))
		v.Num(hetSize, int64(h.Size))
	}
	v.Num("SLURM_JOB_UID", int64(s.UID))
	v.Num("SLURM_JOB_GID", int64(s.GID))
	v.Given("SLURM_JOB_USER", s.User)
	v.Given("SLURM_JOB_GROUP", s.Group)
	v.Given("SLURM_JOB_NAME", s.Name)
	v.Given("SLURM_JOB_ACCOUNT", s.Account)
	v.Given("SLURM_JOB_QOS", s.QOS)
	v.Given("SLURM_WCKEY", s.WCKey)
	v.Given("SLURM_JOB_PARTITION", j.Partition())
	v.Given("SLURM_JOB_RESERVATION", j.ReservationText())
	v.Given("SLURM_JOB_COMMENT", s.Comment)
	v.Given("SLURM_JOB_CONSTRAINTS", s.Features)
	v.Given("SLURM_JOB_LICENSES", licensesText(&more))
	v.Given("SLURM_JOB_WORK_DIR", s.WorkDir)
	if !more.Interactive {
		out, errFile := j.OutputFiles()
		v.Set("SLURM_JOB_STDOUT", out)
		v.Set("SLURM_JOB_STDERR", errFile)
		v.Set("SLURM_JOB_STDIN", cmp.Or(s.StdIn, "/dev/null"))
	}
	v.Num("SLURM_JOB_RESTART_COUNT", int64(j.Restarts))
	if s.Tasks > 0 {
		v.Num("SLURM_NTASKS", int64(s.Tasks))
	}
	if j.Task != model.NoTask && j.ArrayID != 0 {
		v.Num("SLURM_ARRAY_JOB_ID", int64(j.ArrayID))
		v.Num("SLURM_ARRAY_TASK_ID", int64(j.Task))
	}
	if array.Count > 0 {
		v.Num("SLURM_ARRAY_TASK_COUNT", int64(array.Count))
		v.Num("SLURM_ARRAY_TASK_MIN", int64(array.Min))
		v.Num("SLURM_ARRAY_TASK_MAX", int64(array.Max))
		v.Num("SLURM_ARRAY_TASK_STEP", int64(max(array.Step, 1)))
	}
	if j.Run == nil {
		return
	}
	v.Set("SLURM_JOB_NODELIST", hostlist.CompressInOrder(j.Run.Alloc.NodeNames()))
	v.Num("SLURM_JOB_NUM_NODES", int64(len(j.Run.Alloc.Nodes)))
	v.Set("SLURM_JOB_CPUS_PER_NODE", PerNode(j.Run.Alloc, func(n *model.NodeAlloc) int { return n.CPUs.Count() }))
	v.Num("SLURM_JOB_START_TIME", j.Run.Start.Seconds())
}
