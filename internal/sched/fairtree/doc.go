// Package fairtree ranks users by the Fair Tree algorithm, exactly as Slurm documents it
// (https://slurm.schedmd.com/fair_tree.html, after R. Cox and L. Morrison, Brigham Young
// University, 2014).
//
// It is arithmetic on a tree: no clock, no state, no names. Package multifactor builds the tree
// from the associations and their usage, and decides how usage is measured.
//
// Invariants: if account A stands above its sibling B, every user below A stands above every user
// below B; equal level fair-shares give equal ranks; the best user's factor is 1; the next rank is
// the number of users that have been ranked.
package fairtree
