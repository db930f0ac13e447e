// Package seff tells how well a job used what it held, in seff's lines, and what to ask for next
// time. gseff prints it, and mails about a job's end carry it.
//
// It owns the words and the sums behind them, not where the numbers come from: a record is
// accounting's or the controller's, and what a running job uses is asked elsewhere.
//
// Files: job.go (CPU, memory, time), gpus.go; group.go sums up many jobs, spread.go counts values.
package seff
