// Package pmix joins the PMIx servers of a step's nodes, by which Open MPI's programs find each
// other (grun --mpi=pmix). The servers themselves are libpmix, in a process on each node
// (noded/steppmix); a step's command has the Hub (internal/cli/run), to which they are connected by
// internal/stepio.
//
// It owns the messages between them and the collective operations: fences, questions for one task's
// data, and what becomes of a step whose tasks abort or end too early. It does not own processes,
// connections or libpmix, and never looks into the data.
//
// Invariants:
//   - a fence ends when the servers of all its tasks are in it, with the data of all of them;
//   - a task that ends after MPI_Init and before MPI_Finalize ends the step with a sentence, and so
//     does one that ends before MPI_Init while others are in it;
//   - messages, fences and questions are bounded (message.go).
//
// message.go has the messages, hub.go the step's side.
package pmix
