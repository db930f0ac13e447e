// Package issue gives daemons their certificates: to hosts that join with a token, to daemons that
// renew theirs. It takes them back, and says which ones are late.
//
// The log says first who gets one (state.Certs), and then a controller that has the authority's key
// signs it: this one or another. Names that are not in the configuration get none.
//
//	issue.go  Issuer; joining, renewing
//	sign.go   who signs
//	admin.go  tokens, revocations, lists, certificates that are late
//	record.go what was revoked, in a file beside the state
//
// It doesn't own keys and files (internal/rpc/pki), the requests of those who want a certificate
// (internal/certs), facts about certificates (internal/state), or who may ask (ctld/certs.go).
package issue
