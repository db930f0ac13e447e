// Package container gives each job directories of its own in place of the node's /tmp, /var/tmp
// and /dev/shm (JobContainerType=job_container/tmpfs). A job has a mount namespace in which empty
// directories are mounted there; gshim starts every process of the job on the node within it.
// Nobody else sees them, and they go with the job.
//
// It owns one directory, Base, of which nobody but root sees anything:
//
//	jobs/17.1/ns       the job's mount namespace: a mount of nsfs, which holds it
//	jobs/17.1/dirs/0   what the job has in place of the first directory: mode 1777
//	gone/...           what is being removed
//
// Base is a mount of its own, with private propagation: a mount of a namespace can't be in one
// that is passed on to other namespaces. /dev/shm is no directory here but memory: a new tmpfs, as
// large as the node's.
//
// Invariants. A namespace is complete once jobs/NAME/ns is a mount, and only then is it given to
// anybody; an incomplete one is made anew. So gnoded may be killed at any moment. Removing renames
// first, so a job's end does not wait for a million files; what is in gone is removed later, also
// by the next gnoded. What jobs have left there is their users': it is removed without following a
// link, and without a descriptor or a frame of the stack for every directory of a deep tree. After
// a reboot the mounts are gone, and Sweep removes the directories.
//
// container.go has the Store, namespace.go makes a namespace, remove.go removes what users have
// left.
//
// It knows neither jobs nor steps: a container has a name.
package container
