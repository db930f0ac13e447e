// Package fairtree ranks users by the Fair Tree algorithm, exactly as Slurm documents it
// (https://slurm.schedmd.com/fair_tree.html, after R. Cox and L. Morrison, Brigham Young
// University, 2014).
//
// It is arithmetic on a tree: no clock, no state, no names. Who builds the tree (package
// multifactor, from the associations and their usage) decides what a usage is.
//
// Invariants: if account A stands above its sibling B, every user below A stands above every user
// below B; equal level fair-shares give equal ranks; the best user's factor is 1 and the sum of
// users that share or precede a rank gives the next one.
package fairtree
