// Package request reads the options of sbatch, salloc and srun that request a job, and makes the
// request from them.
//
//	options.go      Submission, and the table of its options
//	needs.go gpuindex.go   what a job needs; package ask makes its parts agree
//	setters.go      how values are read that ask for something; grun's table too
//	bind.go bindtext.go   how tasks are bound to CPUs, memory and GPUs; a step's options too
//	container.go    what the script or a step runs in; grun's table too
//	warning.go stated.go      --signal; options that decide nothing, such as --cpu-freq
//	user.go environment.go rlimits.go   whose job it is, and what it takes over from this process
//	request.go      New: the request
//
// It submits nothing: packages submit, allocate and run do.
package request
