// Package trust is the trust model: a table with, for every kind of request and every kind of
// caller, what holds (table.go), and the rules for daemons that pass on users' requests (trust.go).
// The controllers, gnoded and gdbd ask it before they decode a request's body. gbatch-security(7)
// prints it.
//
// It owns who may ask what. It does not own how a caller is known (internal/rpc/server asks the
// kernel, internal/rpc/pki checks certificates), nor which job is whose: that is asked with
// Word.Covers.
//
// # Invariants
//
//   - A kind without a row is refused to everybody, and fails TestEveryKindHasARow.
//   - Only the kernel of a controller's host says who root, SlurmUser, operators and coordinators
//     are. A login host speaks for ordinary users (LoginRights), a node for those with a job there
//     and for few kinds.
//   - What a user may do, a user with more rights may do too.
package trust
