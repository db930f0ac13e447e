// Package samples makes the samples of each minute from what nodes say in their heartbeats and from
// the facts: of GPUs, nodes, running jobs, partitions, accounts, QOS and the cluster.
//
// It owns what is measured and how it is averaged over the minute (gather.go), and the queue from
// which samples go to gdbd (queue.go). It does not own what readings mean (noded/gpuwatch), how
// samples are sent (package ctld) or kept (dbd/history).
//
// # Invariants
//
//   - Nothing waits for samples: the queue is short, and the oldest minute is dropped.
//   - A look takes no lock but that of each node's last heartbeat, and runs three times a minute.
//   - Values that nobody knows are -1 and count in no mean.
package samples
