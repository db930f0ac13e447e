// Package steplayout decides the resources of a job's step and the binding of its tasks: nodes,
// tasks, CPUs, memory, GPUs.
//
// It owns srun's rules. It does not own steps: the job's resources, those of its other steps and
// the request come in by value, and the answer is a value. It has no state, clock or file.
//
// layout.go places a step on the nodes of its job, which choose.go picks; testdata/layout.txt shows
// how. bind.go distributes the step's resources on one node to its tasks there, and defaults.go
// applies DefaultGpuBind and MaxTasksPerNode.
package steplayout
