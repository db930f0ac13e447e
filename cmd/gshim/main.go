// Command gshim is the launcher of a node: see package noded/shim. gnoded starts it; nobody else needs to. As gshim
// step-io it is the process that carries a step's input and output: see package noded/steprelay.
package main

import (
	"os"

	"gbatch/noded/shim"
	"gbatch/noded/steprelay"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == steprelay.Word {
		os.Exit(steprelay.Main(os.Stderr))
	}
	os.Exit(shim.Main(os.Args[1:], os.Stdout, os.Stderr))
}
