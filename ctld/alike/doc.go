// Package alike divides the tasks of arrays that one change names into groups that meet it in the
// same way: each group has an answer of its own. A change of tasks of which some run, some wait and
// some are unknown is made of those that it can be made of, and the others are told, as in Slurm.
//
// It knows nothing of what a change is or who may make it; package ctld makes it.
//
//	alike.go  Divide
//
// Invariants: together the groups have every task of the reference once; a reference whose tasks
// are all alike, or that is no array, stays as it is.
package alike
