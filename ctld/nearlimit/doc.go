// Package nearlimit says which limits of accounts, users and QOS are nearly reached: GrpTRES by
// what running jobs hold, and GrpTRESMins by what was used. AlertProgram is told of them.
//
// It owns the comparison only. The facts have what is used (internal/state); who is told, and how
// often, is package ctld's. It looks at associations and QOS, not at jobs.
package nearlimit
