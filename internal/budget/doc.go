// Package budget shares what a daemon has little of among those who ask for it: bytes under way,
// open files, connections, requests. Nobody has more than a part, all together never more than the
// whole, and whoever comes last still finds something.
//
// It owns the counting. It doesn't own what is counted, nor what is said to those who get nothing.
// Nothing here waits.
package budget
