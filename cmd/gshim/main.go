// Command gshim is the launcher of a node: see package noded/shim. gnoded starts it; nobody else needs to.
package main

import (
	"os"

	"gbatch/noded/shim"
)

func main() {
	os.Exit(shim.Main(os.Args[1:], os.Stdout, os.Stderr))
}
