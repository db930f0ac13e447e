// Package demand knows what jobs ask for on a node, and how well what a node has left suits it.
//
//	w := demand.NewWatch(sched.Wants)
//	w.Refresh(view)                  // before each pass
//	pol := sched.Policy{Demand: w.Mix()}
//
// The planner puts a job on the node where the value of what is lost by it is least: Table.Waste of
// the rest after the start, less that of before. internal/sched/DESIGN.md says what was measured.
//
// Owns: the last requests (watch.go), their mix, and the waste of a node's rest (mix.go). Does not
// own: which nodes may hold a job, and which of a node's GPUs it gets (sched).
//
// Invariants: a Mix never changes, and is the same for the same requests in the same order. All
// numbers are integers. A Watch remembers the last Remembered requests, a Mix the MaxKinds kinds
// that ask for most GPUs. Without Least requests for GPUs there is no Mix, and nodes are filled in
// their order.
package demand
