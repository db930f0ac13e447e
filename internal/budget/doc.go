// Package budget shares what a daemon has little of among those who ask for it: bytes under way,
// open files, connections, requests. Nobody has more than a part, all together never more than the
// whole, and whoever comes last still finds something.
//
// budget.go counts; grow.go reads a message whose length is only claimed, and pays for it as it
// arrives. What is counted, and what is said to those who get nothing, is the callers'. Nothing
// here waits for a budget.
package budget
