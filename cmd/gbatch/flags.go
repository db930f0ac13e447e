package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"gbatch/internal/suggest"
)

var longOption = regexp.MustCompile(`--([a-z][a-z0-9-]*)`)

// flagError says what is wrong with an option in this program's words: the option, the value and the way out.
func flagError(cmd *cobra.Command, err error) error {
	path := cmd.CommandPath()
	var unknown interface {
		error
		GetSpecifiedName() string
		GetSpecifiedShortnames() string
	}
	var value interface {
		error
		GetValue() string
	}
	switch {
	case strings.HasPrefix(err.Error(), "unknown") && errors.As(err, &unknown):
		name, prefix := unknown.GetSpecifiedName(), "--"
		if unknown.GetSpecifiedShortnames() != "" {
			prefix = "-"
		}
		var names []string
		for _, m := range longOption.FindAllStringSubmatch(cmd.Flags().FlagUsages(), -1) {
			names = append(names, m[1])
		}
		way := suggest.Question("--", suggest.Nearest(name, names))
		if way == "" {
			way = path + " --help lists them"
		}
		return fmt.Errorf("%s%s is no option of %s; %s", prefix, name, path, way)
	case errors.As(err, &value):
		if m := longOption.FindStringSubmatch(strings.TrimPrefix(err.Error(),
			fmt.Sprintf("invalid argument %q", value.GetValue()))); m != nil && cmd.Flag(m[1]) != nil {
			return fmt.Errorf("--%s %s: %s is wanted", m[1], value.GetValue(), wanted(cmd.Flag(m[1]).Value.Type()))
		}
	}
	return fmt.Errorf("%w; %s --help shows how it is written", err, path)
}

// wanted describes the values of a type of flags.
func wanted(kind string) string {
	switch kind {
	case "bool":
		return "true or false"
	case "duration":
		return "a duration such as 90s, 10m or 1h30m"
	case "float64":
		return "a number"
	}
	return "a whole number"
}

// noOperands refuses what isn't an option.
func noOperands(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("'%s' is no option, and %s takes nothing else; %s --help lists them", args[0], cmd.CommandPath(),
			cmd.CommandPath())
	}
	return nil
}

// words is for a command that has others below it: it shows its help, and refuses words that it doesn't know.
func words(cmd *cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		var names []string
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
		way := suggest.Question("", suggest.Nearest(args[0], names))
		if way == "" {
			way = cmd.CommandPath() + " --help lists them"
		}
		return fmt.Errorf("'%s' is no command of %s; %s", args[0], cmd.CommandPath(), way)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// operands takes from least to most operands, which what describes.
func operands(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("%s takes %s: %s", cmd.CommandPath(), what, cmd.UseLine())
		}
		return nil
	}
}
