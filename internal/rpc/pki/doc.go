// Package pki makes and checks the certificates that authenticate gbatch's daemons, and makes TLS
// connections with them: one TCP port per daemon, on which ALPN separates raft from rpc.
//
// It owns the cluster's authority, the certificates' form and verification, and the listener that
// keeps strangers out. It does not own the rights of a role (the daemons decide by rpc.Peer) or the
// identity of users (internal/rpc/server asks the kernel).
//
// # Certificates
//
// A directory holds ca.crt, on the host of the authority also ca.key, and ROLE-NAME.crt and .key
// for each daemon that runs from it. All keys are ECDSA P-256. A certificate names its daemon in
// the URI gbatch://CLUSTER/ROLE/NAME; the authority's URI is gbatch://CLUSTER. It also has the DNS
// name ROLE.gbatch: a client asks for that name instead of the address it dials, so that Go's own
// verification checks the role, and an authority's certificate is never a daemon's. Addresses prove
// nothing here and may change freely.
//
// # Invariants
//
//   - TLS 1.3 and certificates on both sides, but for ProtoJoin, where a host that has none asks
//     for one. There the host verifies the server by the authority's fingerprint (joining.go),
//     which is the one configuration with InsecureSkipVerify.
//
//   - A connection that Listener hands out has been verified: signed by this cluster's authority,
//     in date, of this cluster, and of a role that its protocol admits.
//
//   - A stranger costs one goroutine for at most HandshakeTimeout, out of MaxHandshakes; when all
//     are in use, the oldest one is closed, so silent peers can't keep others out. It can't fill
//     the log: one line per address and minute.
//
//   - A private key that others can read is not used.
//
//   - A certificate that the daemon refuses (Credentials.Refuse) has no open connection either.
//
// Read identity.go (what a certificate says), issue.go (making them), sign.go (on request), load.go
// (reading them), credentials.go (a certificate in use, which is renewed), joining.go, tls.go,
// listener.go with strangers.go (limits on strangers), giveup.go
// (peers that have gone), explain.go (errors of failed handshakes).
package pki
