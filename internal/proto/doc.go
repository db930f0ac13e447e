// Package proto holds what the processes of a cluster say to each other: the kinds of frames, the messages in them and
// the error codes with the sentences that tools parse. It moves nothing; package rpc frames and carries the messages.
//
// Three conversations:
//
//	command -> daemon   requests on the local unix socket: Submit, Jobs, Cancel, ... (user.go)
//	daemon  -> leader   the same requests wrapped in Forward, with the caller as the kernel attested it (daemon.go)
//	gnoded <-> leader   one long session: Hello, Welcome, then Orders one way and Reports the other (node.go)
//	leader  -> gdbd     Put (accounting records in order) and Query (daemon.go)
//
// Messages are append-only msgpack arrays: an old daemon ignores a new field. A Wire method lists the fields of each,
// with their limits (see package wire).
package proto
