// Command gbatch runs a whole cluster on one machine, and checks and prepares those that run on many: see package
// internal/up, internal/conf and internal/rpc/pki.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"gbatch/internal/version"
)

// errSilent ends with status 1 when all has been said.
var errSilent = errors.New("")

func main() {
	root := words(&cobra.Command{
		Use:   "gbatch",
		Short: "A cluster on this machine, and what clusters need",
		Long: "gbatch up runs a whole gbatch cluster on this machine. The other commands look after it, and check and " +
			"prepare\n" +
			"configurations and certificates of clusters that span many.",
		SilenceUsage: true, SilenceErrors: true, Version: version.Version,
	})
	root.SetVersionTemplate("gbatch {{.Version}}\n")
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(upCommand(), statusCommand(), downCommand(), powerCommand(), checkCommand(), certCommand(),
		backupCommand(), pamCommand(), simCommand(), importCommand(), versionCommand())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		if !errors.Is(err, errSilent) {
			fmt.Fprintln(os.Stderr, "gbatch: error:", err)
		}
		os.Exit(1)
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: noOperands,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Printf("gbatch %s (speaks the commands of Slurm %s)\n", version.Version, version.Slurm)
		}}
}
