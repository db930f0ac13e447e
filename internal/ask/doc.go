// Package ask computes a job's request: the numbers of nodes, tasks, CPUs, GPUs and licenses, and
// the memory. The commands, the controller, the scheduler, accounting and the simulator all use it,
// so that they agree.
//
// It owns how a request is read, checked and counted. It knows neither nodes nor free capacity:
// internal/sched finds where a job fits, from the same Counts.
//
//	gres.go licenses.go pertask.go number.go   parsers of what options and gcontrol's keys say
//	amounts.go  lists of resources, as in TRES=, GrpTRES= and AllocTRES
//	times.go   limits, moments, and what a deadline leaves of them
//	settle.go  Draft: what is said option by option becomes a model.Spec whose parts agree
//	check.go   Check: what can't be asked for, whatever a cluster has; commands and controller ask it
//	error.go   Error: a refusal, and what it is about
//	elastic.go jobs whose nodes come and go: --elastic and the options beside it
//	counts.go  Of: the numbers of a job with the defaults of its partition and cluster filled in
//	keys.go    JobKeys: what gcontrol update job can set
//	resvkeys.go  ResvKey: the keys of reservations, also shortened
//	key.go     Key: what two jobs have in common that need the same of nodes
//	size.go    Size: the least that a job takes, and the same as a list of resources
//	there.go   what a cluster has, for whoever asked for something else
//	job.go     a job in a list: which rules are its own, and what it has or asks for
//
// Invariants: nothing here has an effect or reads a clock; a Spec is never changed; every number is
// a lower bound of what a plan gives the job, so a job never holds less after its start than was
// shown before it.
package ask
