package main

import "gbatch/internal/cli"

func main() { cli.Run() }
