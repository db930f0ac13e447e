// Package topoyaml reads topology.yaml, the file that describes several networks of one cluster.
//
//	list, faults := topoyaml.Parse(text)
//
// It owns the shape of the file: which attributes there are, what kind of value each has, and at
// which line it stands. It doesn't know nodes, partitions or what a topology is for: package conf
// checks the names. Every fault names its line and the way out; with a fault, the list is of no
// use. Aliases and merge keys are refused, so no text grows by being read.
//
// read.go has the attributes, value.go one value.
package topoyaml
