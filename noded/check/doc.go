// Package check refuses what no command, no other node's daemon and no leader may tell a node: each
// message is checked where it is decoded, so what follows can take its numbers as indexes and its
// texts as they are. step.go has the messages about steps, orders.go the leader's.
package check
