// Package proto has the protocol between the processes of a cluster: the kinds of frames, the
// messages in them, and the error codes with the sentences that tools parse. It sends nothing
// itself; package rpc frames and carries the messages.
//
// Five conversations:
//
//	command -> daemon   requests on the local socket: Submit, Jobs, Cancel, ... (user.go, lists.go)
//	command <-> gnoded  about one step, on a socket of the job's node (step.go)
//	daemon  -> leader   the same requests in Forward, with the caller as the kernel says (daemon.go)
//	gnoded <-> leader   a session: Hello, Welcome, then Orders one way, Reports the other (node.go)
//	leader  -> gdbd     Put (accounting records in order) and Query (daemon.go)
//
// The files:
//
//	requests.go   the kinds, and the table: what may be repeated, who answers, how long it may take
//	errors.go     the codes, and Slurm's words and numbers for them
//	codec.go      Encode, Append, Decode; what one message may hold
//	user.go       what users have done; lists.go what they ask to see; halves.go divides long
//	              answers; subjects with many messages have their own: accounts.go
//	              controllers.go crontab.go doctor.go explain.go (--why) mig.go pools.go stat.go
//	              steplist.go cert.go trigger.go
//	daemon.go dbd.go node.go resize.go step.go report.go history.go   the other conversations
//	stepfiles.go  of step.go: the tasks' files; what is no step (gbcast, gattach)
//
// Messages are append-only msgpack arrays: an old daemon ignores a new field. A Wire method lists
// the fields of each, with their limits (see package wire).
package proto
