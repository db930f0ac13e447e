// Package cgroup confines jobs: it makes, limits, measures, signals and removes one control group
// per job, on cgroup v1, cgroup v2 and hosts that have both ("hybrid"), and says in one sentence
// what a host does not let it do.
//
// # What it owns
//
// The directories below one prefix (such as gbatch/cluster-node) in every hierarchy that it uses,
// and the device programs attached there. It is the only importer of containerd/cgroups, whose part
// is the eBPF device filter; the files of v1 and v2 are written directly, because a job should cost
// a fraction of a millisecond (see DESIGN.md).
//
// # What it does not own
//
// Processes: gshim puts them in (Group.JoinDirs) and reaps them. What limits a job has is gnoded's
// decision.
//
// # Which hierarchy does what
//
// Each task goes to v2 where v2 can do it, else to the v1 hierarchy of that controller: on a hybrid
// host v2 has tracking, killing, freezing, CPU time and devices, and v1 has memory, cpuset and
// pids. Nothing asks for "the mode" to decide that; Mode is for people.
//
// # Invariants
//
//  1. Nothing outside the prefix is changed, except that controllers are switched on for it on the
//     way from the v2 root.
//  2. Create either makes all of a group or leaves nothing.
//  3. A limit that Can() denies is left out, and Why() names it: once, at the start, not job by
//     job.
//  4. Groups survive gnoded. Load and List find them again by name.
//
// Read place.go and root.go (where groups are), detect.go (v1, v2, both), group.go and sub.go (a
// job's group and its steps'), devices.go and programs.go (which devices open), usage.go and
// meter.go (what was used), kill.go, try.go (asking the kernel whether a device opens).
package cgroup
