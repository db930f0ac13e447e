// Package oci runs a job's or a step's processes in an OCI bundle or another container that a
// program of the site runs: crun, runc, apptainer, podman, enroot, or what oci.conf says.
//
// gshim starts "gshim run-bundle" in the place of the task (order.go is what gnoded says to it).
// It is the job's user, in the job's control group, with the job's directories, and has no other
// rights. It reads the bundle's config.json, makes one of its own for this task (spec.go), and
// runs the runtime in the foreground (run.go): its standard files are the task's, signals are
// passed on, and the exit code is the task's.
//
//	order.go    what gnoded says
//	runtimes.go the runtimes that are known, and the patterns of oci.conf
//	spec.go     a bundle's config.json becomes the task's
//	run.go      the process
//	dirs.go     the directories of steps, which gnoded makes and removes
//
// # Invariants
//
//  1. Containers are rootless: the runtime has the user's rights and no more. A container has a
//     user namespace with one user and one group, who are the job's outside.
//  2. What the job is held to stays: control groups, limits and devices are those of the job. A
//     bundle's own resources, control group and limits are left out.
//  3. The network, the host's name, the numbers of processes, System V IPC and /dev/shm are the
//     node's and the job's, as MPI and NCCL need them; a signal does to a process what it does
//     outside.
//  4. What gbatch adds is below /dev, which is a file system of the container's own: a bundle that
//     the user can't write to works.
//  5. Files of one task are in a directory that gnoded has made for the step and removes with it.
package oci
