// Package getopt reads options the way GNU getopt_long does, from several sources through one
// table.
//
// A command declares its options once, as a []Option whose Set functions write into its own
// request. A Parser then collects occurrences from the command line (Args), from #SBATCH lines
// (Directive), from the environment (Env) and from the configuration (Default), in whatever order
// the command learns of them, and Apply calls the Set functions:
//
//   - weakest source first: configuration, directives, environment, command line;
//   - an option that a stronger source gives too is not applied from the weaker one at all (neither
//     is one of the same Slot: --no-requeue in the script and --requeue on the command line);
//   - within one source in the order given, every occurrence, so that lists accumulate and the last
//     of two single values wins.
//
// The syntax is glibc's: unique prefixes of long names, --opt=value and --opt value, optional
// values only after = (or attached to a short option), clustered short options of which the last
// may take a value, "--" ends the options. POSIXLY_CORRECT is not looked at. The words of the
// complaints are glibc's too, because people and tools know them; a suggestion and the way to the
// help follow.
//
// It doesn't know what any option means, prints nothing by itself and never exits. An Error's text
// is complete, with the program's name, ready for stderr.
//
//	option.go set.go      a table of options, and Set functions for the usual kinds of values
//	parser.go apply.go    the sources; calling the Set functions
//	errors.go help.go     complaints, and --help
//	complete.go           what a shell may put in the place of the last word
package getopt
