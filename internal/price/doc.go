// Package price has the arithmetic of money: prices of resources over time, what a session of a job
// costs, discounts, sums for invoices, and the money of an account.
//
// It is pure, and it has no floats: an amount of money is a whole number of micro-units, a price is
// one for an hour of so many units, and what a session costs is rounded once, half away from zero.
// So every controller, and gdbd, gets the same amount from the same numbers, in any order.
//
// It owns no records and no files: callers say what a session had. Invariants:
//
//   - Sums don't depend on the order of sessions.
//   - A session never costs less than nothing; the prices that count are those of its start.
//   - An amount that does not fit becomes the largest one, never a wrong sign.
//
// Files: money.go (amounts), table.go (prices and what a session costs), terms.go
// (minimum time and discounts over time), sums.go (invoices), wallet.go (credit, charges and budget
// of an account). DESIGN.md has the reasons.
package price
