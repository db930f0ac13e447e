// Package share gives many equal requests one answer, and each user a fair part of a daemon's time.
//
//   - Group: equal requests that wait at the same time get one answer, made by one goroutine and
//     kept as encoded bytes. An answer is never older than the request: a request waits for the
//     next one unless the last one is still true.
//   - Gate: so many at a time, taken in turns from those who wait, whatever number of requests
//     each of them has.
//   - Limits: a user who asks for more than a rate allows waits. Nobody fails, and nobody else
//     waits.
//   - Pace: the same for changes, where what a user may have follows what the others ask for.
//   - Budget: the number and bytes of the requests that are under way, of each user and in all.
//   - Seats: what is kept open, of each user and in all.
//   - Room: an answer that is passed on from another daemon is held until it is whole, so that it
//     can be asked for again if it breaks off.
//
// All are bounded: answers in bytes, waits in time, users in number. Read share.go, gate.go,
// limits.go, pace.go, budget.go, seats.go, hold.go.
package share
