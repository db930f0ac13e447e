// Package server answers requests on listeners: unix sockets for local users and accepted TLS
// connections from other daemons. It owns connections, their limits, whose turn it is on them, and
// finding out who is there from the kernel; it does not own what a request means, nor TLS
// (internal/rpc/pki hands it finished connections).
//
// # Invariants
//
//   - A connection has one goroutine, which also handles a sequential client's requests, one after
//     the other; an rpc.Mux's have one each, up to Options.MuxRequests. Serve returns only when all
//     of them have ended.
//   - While a request is handled the connection is watched: when its client leaves, the request's
//     context ends.
//   - A request gets exactly one last answer: the handler's, or "internal error" where the handler
//     panicked, failed with an error that isn't an *rpc.Error, or forgot.
//   - One local user cannot take all connections; root can.
//
// Read serve.go (the limits), conn.go (one connection), request.go (one request), listen.go and
// unixpeer.go (local users), attend.go (commands that stay).
package server
