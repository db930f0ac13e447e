// Package jobenv makes the environment of a job and of its steps: which SLURM_* variables a process
// finds, with which values, and which of the submitted ones are kept.
//
// It owns the names and values, looked up on running Slurms. It does not own what it describes: a
// launch order, a step's layout and the names of a node's units come in by value. It reads no file,
// no clock and no environment of its own.
//
// env.go is the environment of a batch script and of an allocation, step.go that of a step's tasks.
// units.go names GPUs and other units for the runtimes that use them (CUDA_VISIBLE_DEVICES and its
// like), share.go does so for shares of GPUs.
package jobenv
