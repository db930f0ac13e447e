// Package external answers for nodes without a daemon (State=EXTERNAL). Another system, such as
// Kubernetes, runs what belongs to their jobs, and ends it before it ends the job. So the leader
// itself registers such a node, says that a job's part there has begun as soon as it may, and that
// it has ended as soon as it should: answers.go.
//
// It doesn't own when a job may begin (ctld/dispatch.go), nor which jobs get such nodes
// (internal/sched). Like a node's reports, what it says is keyed by attempt and part: said again it
// changes nothing.
package external
