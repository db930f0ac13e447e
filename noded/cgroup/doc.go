// Package cgroup confines jobs: it makes, limits, measures, signals and removes one control group
// per job, on cgroup v1, cgroup v2 and hosts that have both ("hybrid"), and names in one sentence
// the features that a host does not allow.
//
// # What it owns
//
// The directories below one prefix (such as gbatch/cluster-node) in every hierarchy that it uses,
// and the device programs attached there. It is the only importer of containerd/cgroups, which
// makes the eBPF device filter; the files of v1 and v2 are written directly, because a job should
// cost a fraction of a millisecond (see DESIGN.md).
//
// # What it does not own
//
// Processes: gshim puts them in (Group.JoinDirs) and reaps them. gnoded decides a job's limits.
//
// # The hierarchy of each task
//
// Each task uses v2 if v2 can do it, else the v1 hierarchy of that controller: on a hybrid host v2
// has tracking, killing, freezing, CPU time and devices, and v1 has memory, cpuset and pids. No
// code decides by the mode; Mode is for people.
//
// # Invariants
//
//  1. Nothing outside the prefix changes, except that controllers are enabled on the path from the
//     v2 root.
//  2. Create either makes all of a group or leaves nothing.
//  3. Create ignores a limit that Can() denies, and Why() names it: once, at the start, not for
//     each job.
//  4. Groups survive gnoded. Load and List find them again by name.
//
// Read place.go and root.go (where groups are), detect.go (v1, v2, both), group.go and sub.go (a
// job's group and its steps'), devices.go and programs.go (allowed devices), usage.go and meter.go
// (counters), kill.go, try.go (a test whether the kernel opens a device).
package cgroup
