// Package slurmjson writes the JSON that Slurm's commands write for --json, in each version of its
// data_parser.
//
// writer.go has the text itself and the frame around every list, yaml.go the same as YAML,
// fields.go objects as tables of fields with types. What is in the lists, package jobtext and the
// commands say.
//
// Two shapes of lists exist. Up to v0.0.39 a state is a word and a number is plain; from v0.0.40 on
// states are lists, and a number that can be missing or without a limit has "set" and "infinite"
// beside it. A caller writes the same calls for both, and Writer knows the shape.
//
// The text is written as it comes, without a tree in memory and without encoding/json's reflection,
// which would make a small binary larger. The package knows no command, no client and no terminal.
package slurmjson
