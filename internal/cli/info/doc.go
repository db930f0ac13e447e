// Package info has ginfo (sinfo), which lists partitions and nodes.
//
//	ginfo.go         its options, what it asks for, and its table
//	json.go          ginfo --json
//	gpus.go          ginfo -G: a line for each GPU
//	pools.go         ginfo --pools: what partitions have, and accounts' quotas
//	reservations.go  ginfo -T: a line for each reservation
//
// The columns, the lines that nodes share, and the JSON are package jobtext's.
package info
