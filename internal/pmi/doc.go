// Package pmi is the process management interface by which MPI programs find each other: the wire
// protocols PMI-1 and PMI-2 of MPICH, as Slurm's --mpi=pmi2 serves both, and the key-value space
// behind them.
//
// It owns the protocols, the space and the fences. It does not own processes or connections: on
// each node of a step, noded/steppmi has a Local that serves the tasks there, and the command has
// the step's Hub (internal/cli/run), to which the Locals are connected by internal/stepio.
//
// Invariants:
//   - a task gets after a fence what every task of the step has put before it;
//   - a fence that can't end, because one of its tasks has ended, ends the step with a sentence;
//   - keys, values, messages and the whole space are bounded (kvs.go).
//
// message.go has the text of the messages, local.go a node's server, hub.go the step's.
package pmi
