// Package conf owns how gbatch is configured: it reads gbatch.conf (or
// slurm.conf where there is none), gres.conf, cgroup.conf and topology.conf in
// Slurm's syntax and turns them into one typed [Config].
//
//	c, problems := conf.Load("/etc/gbatch")
//	for _, p := range problems { fmt.Println(p) } // file:line: what is wrong; what to write
//
// The way of a file: source.go finds it and cuts it into statements of
// key=value (comments, continuations, quotes, Include); setting.go looks each
// key up in one table (keys*.go) and reads its value; nodes.go, partitions.go,
// gres.go, cgroup.go and topology.go read the lines of their kind; check.go
// compares what stands in different places; problem.go sorts what was found.
// Model gives the part that the controllers replicate, KeyValues what
// `gcontrol show config` prints, Diff what a reconfigure would change.
//
// To add a key: a field in Config, its default in defaults, a line in the table.
// A key of Slurm's that has no meaning here is a line in keys_accepted.go that
// says what does its work instead. A key that is read but that no daemon acts
// upon is on the list unusedKeys until one does.
//
// Invariants, held by tests and fuzzing:
//
//   - All problems are reported at once, each with the file and line where it
//     arises and, where there is one, the way out. A remark about many lines is
//     one remark that names them.
//   - Load returns a Config exactly where no problem is an Error, so a
//     configuration that can't be used isn't there to be used by mistake.
//   - Nothing in a file is passed over in silence: a key is effective, or a note
//     or warning says why it isn't, or it is an error with a suggestion.
//   - No input makes it panic or use more than the limits in source.go allow.
//
// It doesn't resolve names, look at hardware or start anything, and it reads no
// clock and no environment. Which configuration a process uses is for package
// locate to say. Paths in a Config are as written; only PKIDir is made absolute.
//
// Where gbatch differs from Slurm on purpose: unknown keys get a suggestion, Unset makes earlier
// lines of a key not count (unset.go), "#" inside quotes is no comment, the kind of a plugin may be
// left out (cgroup for task/cgroup), a port may stand in SlurmctldHost=name(addr:port), sizes such
// as RealMemory may have a unit, SlurmdTimeout is 30 by default, and without cgroup.conf jobs are
// held to their cores, memory and devices.
//
// Further files: load.go (which files there are), config.go (the fields and their defaults),
// controllers.go, keys.go, keys_accounting.go and unused.go (the tables), linekeys.go (keys of
// lines), value.go (one value), scheduler.go, priority.go, preempt.go, select.go, gpuselect.go and
// gpuidle.go (families of keys), nodegres.go, share.go and placement.go (what nodes have, how GPUs
// are divided and connected), replicated.go (the controllers' part), atstart.go (what gnoded reads
// only when it starts), suggest.go (what was meant).
package conf
