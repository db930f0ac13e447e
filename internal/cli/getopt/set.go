package getopt

import (
	"fmt"
	"strconv"
	"strings"
)

// Set functions for the common kinds of option. Those with a unit or a grammar of their own (times,
// memory, hostlists) are their command's business.

// Text stores the value.
func Text(dst *string) func(string) error {
	return func(v string) error { *dst = v; return nil }
}

// Flag stores true.
func Flag(dst *bool) func(string) error { return Const(dst, true) }

// Const stores a fixed value: the other half of --requeue and --no-requeue.
func Const[T any](dst *T, v T) func(string) error {
	return func(string) error { *dst = v; return nil }
}

// Count adds one: -vvv.
func Count(dst *int) func(string) error {
	return func(v string) error {
		*dst += times(v)
		return nil
	}
}

// times is how often a counted option is given with this value: once, or as often as its variable says.
func times(v string) int {
	if n, err := strconv.Atoi(v); err == nil && n > 1 {
		return min(n, 9)
	}
	return 1
}

// List appends the value's comma-separated parts, without blanks around them and without empty ones, so
// that -j 1 -j 2,3 is [1 2 3].
func List(dst *[]string) func(string) error {
	return func(v string) error {
		for part := range strings.SplitSeq(v, ",") {
			if part = strings.TrimSpace(part); part != "" {
				*dst = append(*dst, part)
			}
		}
		return nil
	}
}

// Number stores a decimal number from least to most.
func Number[T ~int | ~int32 | ~int64 | ~uint16 | ~uint32](dst *T, least, most T) func(string) error {
	return func(v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		switch {
		case err != nil:
			return &NumberError{Value: v}
		case n < int64(least):
			return &NumberError{Value: v, Why: fmt.Sprintf("it must be at least %d", least)}
		case n > int64(most):
			return &NumberError{Value: v, Why: fmt.Sprintf("it can be at most %d", most)}
		}
		*dst = T(n)
		return nil
	}
}

// HelpOptions are --help, --usage and -V/--version, which every command has. letter is the short name of
// --help, 0 where -h means something else (squeue, sinfo).
func HelpOptions(letter rune) []Option {
	give := func(err error) func(string) error { return func(string) error { return err } }
	const group = "Help options"
	return []Option{
		{Name: "help", Short: letter, Group: group, Help: "show this help message", Immediate: true, Set: give(ErrHelp)},
		{Name: "usage", Group: group, Help: "display brief usage message", Immediate: true, Set: give(ErrUsage)},
		{Name: "version", Short: 'V', Group: group, Help: "output version information and exit", Immediate: true,
			Set: give(ErrVersion)},
	}
}
