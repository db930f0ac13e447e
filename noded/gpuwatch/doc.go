// Package gpuwatch reads a node's GPUs, and says which of them should not be given to jobs.
//
// # What it owns
//
// watch.go is the one watcher: a round every few seconds, told to all who subscribed, and a pause
// of the readings while somebody divides GPUs. health.go makes of the rounds the node's account of
// GPUs that are broken or in use by processes of no job. readings.go makes of a round what the
// heartbeat says of each unit.
//
// # What it does not own
//
// How a GPU is read and which fault is fatal (noded/gpu); what follows for jobs and nodes (the
// leader, by the account); GpuRecoverProgram (noded).
//
// # Invariants
//
//  1. The account is told whole. Its words stay the same while the same thing is wrong.
//  2. A round that failed changes nothing: what was said stands.
//  3. Nobody who is told of a round may wait.
package gpuwatch
