// Package resv makes reservations from an operator's settings, and updates them when time passes or
// nodes change.
//
// It owns the meaning of gcontrol create reservation's keys, the choice of nodes or parts of nodes,
// the calendar of repeating reservations, and the updates of existing ones. It doesn't own
// reservations as facts (internal/state), their effect on jobs (internal/sched), or the right to
// make them (ctld/reservation.go).
//
//	resv.go      the API: Facts, Create, Update, Refusal
//	words.go     reads keys and values into a draft; change.go those that add or take away
//	pick.go      chooses nodes, parts of nodes and licenses
//	calendar.go  when a reservation repeats
//	kept.go      updates as time passes or nodes change: Kept
//
// It only decides: no clock, no socket, no lock. The host's time zone and groups come in Facts.
package resv
