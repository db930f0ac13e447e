// Package ask answers what a job asks for: how many nodes, tasks, CPUs, GPUs, licenses and how much
// memory. The commands, the controller, the scheduler, accounting and the simulator all ask here,
// so that they agree.
//
// It owns the reading of a model.Spec. It knows no node and nothing of what is free: where a job
// fits is internal/sched's business, which starts from the same Counts.
//
//	counts.go  Of: the numbers of a job with the defaults of its partition and cluster filled in
//	key.go     Key: what two jobs have in common that need the same of nodes
//	size.go    Size: the least that a job takes, and the same as a list of resources
//	there.go   what a cluster has, for whoever asked for something else
//	job.go     a job in a list: which rules are its own, and what it has or asks for
//
// Invariants: nothing here has an effect or reads a clock; a Spec is never changed; every number is
// at least what a plan gives the job, so that what is shown before the start is never more than
// what it holds afterwards.
package ask
