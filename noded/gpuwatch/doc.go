// Package gpuwatch reads a node's GPUs, and lists those that jobs should not get.
//
// # What it owns
//
// watch.go is the one watcher: it sends a round to all subscribers every few seconds, and pauses
// while GPUs are divided. health.go derives from the rounds the node's account of GPUs that are
// broken or in use by processes of no job. readings.go derives the heartbeat's reading of each
// unit.
//
// # What it does not own
//
// Reading a GPU, and the fatal faults (noded/gpu); the consequences for jobs and nodes (the leader,
// by the account); GpuRecoverProgram (noded).
//
// # Invariants
//
//  1. The whole account is sent. Its text stays the same while the problem is the same.
//  2. A failed round changes nothing.
//  3. A subscriber must not wait.
package gpuwatch
