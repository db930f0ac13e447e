// Package clitest is for tests of commands: a controller that answers from what a test put into it
// (fake.go), nodes and partitions to put into it (demo.go), and what must hold of every command's
// options (options.go).
package clitest
