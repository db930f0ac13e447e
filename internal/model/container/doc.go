// Package container has what a user asks of a job's or a step's container: an image of a
// registry, or an OCI bundle, and how it is run. The words are those of NVIDIA's pyxis, which
// are what users of Slurm write, and Slurm's --container.
//
// wish.go has the request and its rules, mount.go reads --container-mounts, runtime.go says what
// runs bundles. What a request means on a node is in noded/box and noded/image, and in noded/oci.
package container
