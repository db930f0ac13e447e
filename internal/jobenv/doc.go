// Package jobenv makes the environment of a job and of its steps: the SLURM_* variables, their
// values, and the choice of submitted variables to keep.
//
// It owns the names and values, as observed on running Slurm clusters. A launch order, a step's
// layout and the names of a node's units come in by value. It reads no file, no clock and not its
// own process's environment.
//
// env.go makes the environment of a batch script and of an allocation, request.go the part of it
// that repeats what the user asked for, step.go that of a step's tasks, het.go that of
// heterogeneous jobs, torch.go what PyTorch's launcher would add. units.go names GPUs and other
// units for runtimes (CUDA_VISIBLE_DEVICES and the like), share.go does so for shares of GPUs,
// remote.go for those of servers. site.go describes a job to the site's programs. niceness.go says
// how nice a process is.
package jobenv
