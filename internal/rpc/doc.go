// Package rpc carries requests between gbatch's processes: length-prefixed frames over a unix
// socket or a TLS connection, request and answer on top of them, and the identity of the requester.
//
// It owns the bytes on the wire up to the frame's body, the limits on them, and the client's side
// of a call. It does not own the meaning of bodies (internal/proto), serving (internal/rpc/server),
// certificates and TLS (internal/rpc/pki), or the limit on idle connections (its user sets a read
// deadline).
//
// Every user command links this package, so it imports neither net nor crypto/tls nor log/slog:
// package net alone costs a command 80 to 150 µs of the 2 ms it runs (DESIGN.md has the numbers),
// and a test checks the import list.
//
// # Wire
//
// A connection opens with a preface of 8 bytes from each side: "GBATCH" and the protocol version as
// a big-endian uint16. The client may send its first request with the preface; the server then may
// send its own with the first answer. After that there are only frames, all numbers big-endian:
//
//	uint32 length of what follows   uint16 kind   uint16 flags   uint32 id   body (length - 8 bytes)
//
// A request has an id that its answers repeat. An answer is any number of frames with FlagMore and
// one without; an error is a last frame with FlagError and the body of an Error. A frame with id 0
// and FlagError is the server's error for the whole connection (too many connections, a frame it
// could not read), which it then closes.
//
// # Invariants
//
//   - A wrong preface, an unknown flag, a length over the limit or an incomplete frame closes the
//     connection with an error that names the peer. Nothing a peer sends makes this package panic.
//   - Memory depends on the bytes that arrived, never on a claimed length.
//   - A frame that has begun must end within FrameTimeout plus its length at MinRate; the same
//     holds for writing.
//   - One goroutine reads a Conn; any number write to it.
//   - A Mux with requests under way whose peer sends nothing for SilentAfter ends with ErrSilent;
//     so does a command's request if SetProbe's function fails.
//
// Read frame.go and preface.go (the bytes), conn.go (one connection), call.go (a request), mux.go
// (many at once between daemons), alive.go (silent peers), dial.go and sock.go (unix sockets),
// peer.go (the peer's identity), error.go.
package rpc
