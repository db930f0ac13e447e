// Package certs keeps a daemon's certificate alive: a host without one joins with a token, and a
// daemon renews its own while it runs.
//
// It owns the form of a token, what a host and a controller say to each other about certificates,
// and the loop that renews. It does not own the files and TLS (internal/rpc/pki), or who gets a
// certificate (ctld, which asks the replicated facts).
//
// # A token
//
// ID.SECRET.FINGERPRINT, where the fingerprint is the SHA-256 of the authority's certificate. Who
// makes the token keeps the secret; the controllers have its hash. It is shown only to a server
// whose certificate is of that authority.
//
// # Invariants
//
//   - A private key is made on its host and never leaves it.
//   - The secret of a token is sent over a connection whose server is verified, or not at all.
//   - Nothing here ends a connection because of renewal.
//
// Read token.go, join.go (the new host's side), renew.go (the loop), refuse.go (what was revoked).
package certs
