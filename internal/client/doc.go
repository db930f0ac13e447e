// Package client makes the commands' requests to the cluster, over the local unix socket of a
// controller or node daemon on this host, which passes them on to the leader. A command needs no
// addresses and no secret: the kernel tells the daemon the user's identity.
//
// It finds a socket that answers and retries while leadership changes. It repeats a request that
// was not sent, or that no leader has received, and one whose answer is lost: it reads, or it is a
// submission, which carries a RequestID, or another change, which goes out under an id, and which
// the cluster makes once. If the time for that is over, the error says that the outcome is unknown,
// and it says so only then. A controller of an older version knows no ids: it gets a change without
// one, which is not repeated. Every user command links the package, so it stays as light as package
// rpc.
//
//	client.go  a request and its answer
//	left.go    a daemon that has just ended
//	attend.go  a job that is there for one command only
//	steps.go   the conversation about a step
package client
