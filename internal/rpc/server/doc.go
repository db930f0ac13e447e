// Package server answers requests on listeners: unix sockets for local users and accepted TLS
// connections from other daemons. It owns connections, their limits, the order of requests on them,
// and the identity of local peers (from the kernel). It does not own the meaning of requests, or
// TLS (internal/rpc/pki gives it established connections).
//
// # Invariants
//
//   - A connection has one goroutine, which also handles a sequential client's requests, one after
//     the other; an rpc.Mux's have one each, up to Options.MuxRequests. Serve returns only when all
//     of them have ended.
//   - The server watches a connection during a request: when the client disconnects, the request's
//     context ends.
//   - A request gets exactly one last answer: the handler's, or "internal error" if the handler
//     panicked, failed with an error that isn't an *rpc.Error, or gave no answer.
//   - One local user cannot take all connections; root can.
//   - A body is read only when its length fits its kind's limit and share.Budget has room for it:
//     for what one user has under way, and for all. Until then a user's connection is not read;
//     over an rpc.Mux, which many share, the request is refused with CodeBusy and its body skipped.
//
// Read serve.go (the limits), conn.go (one connection), request.go (one request), listen.go and
// unixpeer.go (local users), attend.go (commands that stay), late.go (requests that come too late).
package server
