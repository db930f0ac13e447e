// Package steplayout decides what a step of a job gets and what its tasks are bound to: nodes,
// tasks, CPUs, memory, GPUs.
//
// It owns srun's rules. It does not own steps: what a job has, what its other steps hold and what
// is asked for come in by value, and the answer is a value. It has no state, clock or file, and can
// be asked as often as one likes.
//
// layout.go places a step on the nodes of its job; testdata/layout.txt shows how. bind.go deals
// what the step holds on one node out to its tasks there, and defaults.go puts in DefaultGpuBind.
package steplayout
