// Package faultsim runs a whole cluster in one goroutine, under faults that a seed chooses, and
// checks after every step that nothing is lost, doubled or confused. It is a tool of tests.
//
// One number, the seed, decides everything: the jobs, the users' requests, the delay of every
// message, who is stopped, killed, cut off or given a wrong clock, and when. There is one queue of
// events and no other goroutine, so a seed that fails fails again, step for step:
//
//	go test ./internal/faultsim -run TestSim -seed 4711     one world, with its story
//	go test ./internal/faultsim -run TestSim -seeds 10000   so many worlds
//
// # What is real, and where the line is
//
// Real: the state machine with its codec, snapshots and Check (state), the planner (sched), the
// memory of requests (state.Once), the outbox, the cluster's time (ctld/clock), the verdict by
// which a node ends its jobs (noded/fence), and the messages between controllers and nodes with
// their codec (proto).
//
// Modelled: the replicated log (log.go: one order, terms, commit by a majority, proposals that are
// lost or outlive their leader; raft itself is tested in internal/store), a controller and its disk
// (controller.go), the leader's loops (leader.go), gnoded (node.go), gshim and the processes
// (shim.go), gdbd (gdbd.go), commands that repeat their requests (client.go). The models follow the
// rules on which safety rests, as the daemons' comments state them: who may answer, what is on disk
// before what is done, what is refused. Races inside of a daemon are not here.
//
// world.go is the queue of events, stream.go a connection.
//
// Streams between daemons keep their order, as TCP does: they stall in a partition, go on after it,
// or break. Users' requests and answers are also lost, doubled and put out of order.
//
// # Faults (faults.go)
//
// A cut between any two hosts; a controller or gnoded that is killed, stopped for longer than
// SlurmdTimeout, or started anew; a node that reboots, with a disk that has lost its last writes;
// a controller whose disk stalls, or has bytes flipped, so that it begins anew with the others'
// state; a gdbd that is killed between writing and acknowledging; a host's clock that is set an
// hour off.
// At most one controller at a time has lost its disk: a majority of lost disks is refused by the
// store, not survived.
//
// # Invariants, after every step (check.go)
//
//   - No GPU is used by two processes; no job has two processes, nor one attempt two starts; no
//     attempt starts after a later one.
//   - A node carries out no order of an epoch older than one that it has obeyed.
//   - An acknowledged change is there for ever and was made once. A leader that answers knows it.
//   - Replicas of one index have equal bytes, and state.Check holds.
//   - No record is dropped before gdbd has it, and at the end the records are what has run: how it
//     ended, on which GPUs, and for how long it had them.
//   - No job is ended for its time limit sooner than by elapsed time.
//
// For each there is a fault of our own making (Bug), and a test that the check finds it.
package faultsim
