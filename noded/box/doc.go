// Package box makes containers of images: mount namespaces whose root is an image, with the
// job's devices, the node's /proc and /sys, and the directories that the job's user wants to
// see. gshim lets the job's processes enter them, in the job's control group and as the job's
// user.
//
// # What a process in one sees
//
//	/                  the image, owned by the user, and changes that go with the container
//	/dev               null, zero and their like, terminals, the device files of the job's units
//	/proc /sys         the node's; /sys can't be written to
//	/tmp /dev/shm      the job's outside of the container
//	/etc/resolv.conf   the node's, like /etc/hosts; passwd and group are the image's, with the user
//	what the user mounts
//
// # Invariants
//
//  1. Nobody gets rights. All mounts are nosuid, and processes begin with no_new_privs: a
//     set-uid program of the node that a user mounts beside a configuration of the user's own
//     changes nobody's rights.
//  2. Sources of mounts are opened with the user's rights to files (asuser): root opens nothing
//     that the user names.
//  3. Directories to mount on are made while nothing but the image is mounted, or with the
//     user's rights: root makes nothing in a directory of the node. Names in a container are
//     resolved within it, after pivot_root, so that links of an image lead nowhere else.
//  4. Devices are kept from jobs by the control group, as outside; a /dev with few files only
//     shows it.
//  5. The image in the cache is never written to. Its files belong to nobody there, and a mount
//     that maps ids shows them as the user's.
//
// box.go has the Store, fill.go fills a namespace, points.go makes what is mounted on, ids.go
// maps ids, programs.go finds a program, process.go says how one begins, driver.go finds the GPU
// driver's libraries. Namespaces are held as package container holds them, and images come from
// package image.
package box
