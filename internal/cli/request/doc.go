// Package request reads what sbatch, salloc and srun take to ask for a job, and makes the request
// of it.
//
//	options.go      Submission, and the table of its options
//	needs.go gpus.go gpuindex.go shares.go trespertask.go   what a job needs; its parts agree
//	bind.go bindtext.go   how tasks are bound to CPUs, memory and GPUs; a step's options too
//	warning.go      --signal
//	user.go environment.go rlimits.go   whose job it is, and what it takes over from this process
//	request.go      New: the request
//
// It submits nothing: packages submit, allocate and run do.
package request
