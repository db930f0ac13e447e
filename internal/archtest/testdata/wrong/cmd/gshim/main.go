package main

import (
	_ "gbatch/cmd/gcli"
	_ "gbatch/internal/devcluster"
)

func main() {}
