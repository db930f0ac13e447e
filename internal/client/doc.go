// Package client makes the commands' requests to the cluster, over the local unix socket of a
// controller or node daemon on this host, which passes them on to the leader. A command needs no
// addresses and no secret: the kernel tells the daemon the user's identity.
//
// It finds a socket that answers and retries while leadership changes. It repeats a request that
// was not sent, or that no leader has received. It repeats one with a lost answer only if its row
// in proto's table of requests allows it (it reads, or is a submission, which carries a RequestID);
// otherwise the error says that the outcome is unknown. Every user command links the package, so it
// stays as light as package rpc.
//
//	client.go  a request and its answer
//	attend.go  a job that is there for one command only
//	steps.go   the conversation about a step
package client
