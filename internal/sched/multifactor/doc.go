// Package multifactor computes priorities as Slurm's multifactor plugin documents them
// (https://slurm.schedmd.com/priority_multifactor.html): a weighted sum of age, association,
// fair-share, job size, partition, QOS and TRES factors, plus the site factor, less nice.
//
// A priority is derived, not a fact: the leader computes it from a View, and it never goes through
// the log. New takes what changes slowly (shares, usage, totals) once; Order.Priority then costs a
// few lookups per job and can be asked about jobs that did not exist when it was made.
//
// Read tree.go (associations and usage -> fair-share of every user), order.go (factors ->
// priority), classic.go for the fair-share formulas that Fair Tree replaced.
//
// It doesn't own: the ranking itself (package fairtree), usage and its fading (package state), the
// times at which priorities are computed anew (ctld).
//
// find.go finds associations.
package multifactor
