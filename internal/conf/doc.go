// Package conf owns how gbatch is configured: it reads gbatch.conf (or
// slurm.conf where there is none), gres.conf, cgroup.conf, topology.conf or
// topology.yaml (package topoyaml) and job_container.conf in Slurm's syntax and turns them into
// one typed [Config].
//
//	c, problems := conf.Load("/etc/gbatch")
//	for _, p := range problems { fmt.Println(p) } // file:line: what is wrong; what to write
//
// How a file is read: source.go finds it and splits it into statements of key=value (comments,
// continuations, quotes, Include); setting.go looks each key up in one table (keys*.go) and reads
// its value; nodes.go, partitions.go, gres.go, cgroup.go, topology.go and container.go read the
// lines of their kind; check.go compares settings in different places; problem.go sorts the
// problems. Model gives the part that the controllers replicate, KeyValues what `gcontrol show
// config` prints, Diff what a reconfigure would change.
//
// To add a key: a field in Config, its default in defaults, a line in the table. A key of Slurm's
// without meaning here is a line in keys_accepted.go that says what gbatch does instead. A key that
// is read but not used by any daemon is on the list unusedKeys.
//
// Invariants, held by tests and fuzzing:
//
//   - All problems are reported at once, each with the file and line where it arises and, where
//     there is one, the way out. A remark about many lines is given once and names the lines.
//   - Load returns a Config if and only if no problem is an Error, so an invalid configuration
//     can't be used by mistake.
//   - Nothing in a file is ignored silently: a key is effective, or a note or warning says why it
//     isn't, or it is an error with a suggestion.
//   - No input makes it panic or use more than the limits in source.go allow.
//
// It doesn't resolve names, look at hardware or start anything, and it reads no clock and no
// environment. Package locate decides which configuration a process uses. Paths in a Config are as
// written; only PKIDir is made absolute.
//
// Where gbatch differs from Slurm on purpose: unknown keys get a suggestion, Unset cancels earlier
// lines of a key (source.go), "#" inside quotes is no comment, the kind of a plugin may be left out
// (cgroup for task/cgroup), SlurmctldHost=name(addr:port) may have a port, sizes such as RealMemory
// may have a unit, SlurmdTimeout is 30 by default, and without cgroup.conf jobs are limited to
// their cores, memory and devices.
//
// Further files: load.go (finds and reads the files), config.go (the fields and their defaults),
// controllers.go, keys.go, keys_accounting.go and unused.go (the tables), linekeys.go (keys of
// lines), certs.go (certificates), value.go (one value, and suggestions for misspelt words),
// scheduler.go, priority.go, preempt.go, power.go, spare.go, select.go and gpuselect.go (families
// of keys), nodegres.go, share.go and placement.go (nodes' resources, how GPUs are divided and
// connected, and where nodes are in topologies),
// replicated.go (the controllers' part), atstart.go (settings that gnoded reads only when it
// starts), define.go (definitions of partitions and nodes that are given while the cluster runs).
package conf
