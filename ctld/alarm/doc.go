// Package alarm finds what AlertProgram is told, and puts it into words. It looks at facts and at
// what its caller found wrong; it calls nothing itself.
//
//	alarm.go an Alert, as a sentence and as variables
//	nodes.go what has changed of nodes and GPUs between two looks at the facts
//	watch.go troubles of daemons: each is told once when it has lasted, and once when it is over
//
// An event that begins something has one that ends it (Overs), and both have words here: a new one
// is added to the tables.
package alarm
