// Package clock keeps the cluster's time on a controller: the time that stamps commands, and by
// which jobs begin, end and are charged.
//
// Hosts' clocks are set by people and by NTP, and some are wrong. Elapsed time is not: the kernel
// counts it since boot. So the cluster's time goes on by elapsed time from the last moment that is
// known, and is only bent towards what the hosts' clocks say:
//
//   - A new leader goes on from the time of the old one, which it has followed. Its own clock may
//     be an hour off: nothing jumps.
//   - A daemon that starts anew on a host that has not rebooted goes on from its file (file.go).
//   - After a reboot, elapsed time is unknown. The cluster's time stands at its last moment, and
//     goes on from there, until the clocks of most hosts agree on the present; then it steps.
//   - A small difference (30 s) is made up at a tenth of the time that passes, a larger one at a
//     two-hundredth: an hour of difference shortens or lengthens no job by more than 18 seconds
//     in each hour of its own.
//
// What the hosts' clocks say is decided by a majority (judge.go): of controllers where there are
// three, else of controllers and nodes together. A controller outside of the majority says so,
// believes the others and hands leadership over.
//
// It owns no loop and no connection: ctld/clocks.go compares the controllers' clocks and calls
// this package.
//
// Files: clock.go (the time), judge.go (the majority), file.go (what survives a restart).
package clock
