// Package client is how commands talk to the cluster: over the local unix socket of a controller
// or node daemon on this host, which passes requests on to whoever leads. A command knows no
// addresses and holds no secret: the kernel tells the daemon who it is.
//
// It owns finding a socket that answers and trying again while leadership moves. A request that
// was not sent, or that no leader has got, is made again. One whose answer is lost is made again
// only where its row in proto's table of requests says so (it reads, or is a submission, which
// carries a RequestID); for the others it is not known whether the change was made, and the error
// says so. The package is linked into every user command and stays as light as package rpc.
//
//	client.go  a request and its answer
//	attend.go  a job that is there for one command only
//	steps.go   the conversation about a step
package client
