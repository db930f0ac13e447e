package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"gbatch/internal/conf"
	"gbatch/internal/conf/locate"
	"gbatch/internal/conf/thishost"
)

func checkCommand() *cobra.Command {
	var security, asJSON bool
	cmd := &cobra.Command{
		Use:   "check [DIR|FILE]",
		Short: "Check a configuration and say what is wrong with it",
		Long: "Check the gbatch.conf or slurm.conf in DIR (or FILE, or the configuration that commands use) and the " +
			"gres.conf,\n" +
			"cgroup.conf and topology.conf (or .yaml) beside it. Every problem is named with its file and line and what to " +
			"write instead. On\n" +
			"a host with a controller or a node, what it names and this host lacks is said too: users, directories of logs, " +
			"the\nstate, certificates. The " +
			"exit status is 1 when there are errors; warnings and notes keep nothing from running.\n" +
			"--security looks at this host instead: keys, certificates, programs, directories and settings that leave\n" +
			"something open.",
		Args: operands(0, 1, "one directory or file at most"),
		RunE: func(_ *cobra.Command, args []string) error {
			var path string
			var err error
			if len(args) > 0 {
				path = args[0]
			} else if path, err = locate.Config(os.Getenv); err != nil {
				return err
			}
			if asJSON && !security {
				return errors.New("--json is for --security")
			}
			if security {
				cfg := load(path)
				if cfg == nil {
					return fmt.Errorf("%s has errors: run `gbatch check` first", path)
				}
				return checkSecurity(cfg, asJSON)
			}
			return check(path)
		},
	}
	cmd.Flags().BoolVar(&security, "security", false, "say what this host leaves open, and the way out")
	cmd.Flags().BoolVar(&asJSON, "json", false, "with --security: print JSON")
	return cmd
}

func load(path string) *conf.Config {
	read := conf.LoadFile
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		read = conf.Load
	}
	cfg, _ := read(path)
	return cfg
}

func check(path string) error {
	read := conf.LoadFile
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		read = conf.Load
	}
	cfg, problems := read(path)
	if host, err := os.Hostname(); cfg != nil && err == nil {
		problems = append(problems, thishost.Look(cfg, thishost.Here(cfg, host))...)
	}
	n := map[conf.Severity]int{}
	for _, p := range problems {
		n[p.Severity]++
		fmt.Println(p)
	}
	what := path
	if cfg != nil {
		what = fmt.Sprintf("%s: cluster %s, %s, %s, %s", cfg.Path, cfg.ClusterName,
			plural(len(cfg.Controllers), "controller"),
			plural(len(cfg.Nodes), "node"), plural(len(cfg.Partitions), "partition"))
	}
	fmt.Printf("%s; %s, %s, %s\n", what, plural(n[conf.Error], "error"), plural(n[conf.Warning], "warning"),
		plural(n[conf.Note], "note"))
	if n[conf.Error] > 0 {
		return errSilent
	}
	return nil
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
