// Package allocfile keeps, for elastic jobs, the files in which a job finds its present nodes: one
// folder for each attempt on the node of its script, with allocation.json (all that is known),
// allocation.hosts (the nodes, one in each line) and allocation.gpus (their GPUs). All code is in
// allocfile.go; noded says when they change.
//
// Invariants: a file is never seen half written, and allocation.json is replaced last; a file with
// an older version never takes the place of a newer one; only the job's user can read them.
//
// It doesn't own: which nodes a job has (the leader), and the signal that says so (noded).
package allocfile
