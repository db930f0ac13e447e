// Package relay forwards requests of this host's users to the leader. gnoded decides nothing about
// them: the kernel gives the user's uid, and the leader trusts it as far as this node's certificate
// allows.
//
// It owns the local socket's requests, the connections for them, and the search for the leader. It
// doesn't own the node's session with the leader (noded/session.go), nor requests about steps
// (noded/stepserve.go).
//
//	local.go        Local: requests on the socket; names.go what users and groups are called
//	attend.go       a command that is killed gives back what it held
//	relay.go        Relay: forwarding, one connection for all, never twice what must not be
//	records.go      Records: questions about records go to gdbd
//	controllers.go  Controllers: who they are
//	find.go         which of them leads: all are asked at once
package relay
