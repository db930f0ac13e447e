// Package token makes and checks the tokens (JWT, RFC 7519) that speak for users over HTTP.
//
// It owns what stands in a token and what makes one count: a signature with the cluster's key
// (HS256), or with one of a site's identity provider (RS256, a file of public keys, RFC 7517), a
// moment at which it ends, and a user's name. It does not own the key (the replicated facts have
// it), nor who the user is and what the user may do: package ctld says that, as for every caller.
//
// A token names its user in "sun", as Slurm's tokens do. Tools that have the key make tokens by
// themselves. One that was made through a login host says in "gbatch_rights" how much it may do at
// most, so that a login host can't get rights from it that it doesn't have (LoginRights).
//
//	token.go   making and checking
//	seen.go    tokens that were checked already
//	jwks.go    the public keys of an identity provider
package token
