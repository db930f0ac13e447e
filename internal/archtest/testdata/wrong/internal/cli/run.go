package cli

import (
	_ "gbatch/internal/client"
	_ "github.com/spf13/cobra"
)

func Run() {}
