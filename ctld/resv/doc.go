// Package resv makes reservations: of an operator's words, and again when time passes or nodes
// change.
//
// It owns what the keys of gcontrol create reservation mean, which nodes or parts of nodes a
// reservation gets, when one that repeats comes again, and what has to change in one that exists.
// It doesn't own reservations as facts (internal/state), what they keep from jobs
// (internal/sched), or who may make them (ctld/reservation.go).
//
//	resv.go      the face: Facts, Create, Update, Refusal
//	words.go     keys and values become a draft
//	pick.go      nodes, parts of nodes and licenses are chosen
//	calendar.go  when a reservation comes again
//	kept.go      what time and nodes change: Kept
//
// Decisions only: no clock, no socket, no lock. What depends on the host, its time zone and its
// groups, comes in Facts.
package resv
