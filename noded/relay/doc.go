// Package relay carries what users of this host ask to the controller that leads. gnoded decides
// nothing about it: the kernel says who asks, and the leader believes that as far as this node's
// certificate goes.
//
// It owns the local socket's requests, the connections for them, and the search for the leader. It
// doesn't own the node's own conversation with the leader (noded/session.go), nor that about steps
// (noded/stepserve.go).
//
//	local.go        Local: requests on the socket; names.go what users and groups are called
//	attend.go       a command that is killed gives back what it held
//	relay.go        Relay: forwarding, one connection for all, never twice what must not be
//	controllers.go  Controllers: which of them leads
package relay
