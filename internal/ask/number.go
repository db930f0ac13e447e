package ask

import (
	"errors"
	"strconv"

	"gbatch/internal/walltime"
)

// ErrNoCount says that a text is no number at all.
var ErrNoCount = errors.New("it is not a whole number")

// ParseCount reads a count of tasks, CPUs and the like from 1 to most; k and m behind it are powers of 1024.
func ParseCount(v string, most int64) (int32, error) {
	n, err := walltime.ParseCount(v)
	switch {
	case err != nil:
		return 0, ErrNoCount
	case n < 1 && most == MaxTasks:
		return 0, errors.New("it must be at least 1")
	case n < 1 || n > most:
		return 0, errors.New("it must be from 1 to " + itoa(most))
	}
	return int32(n), nil
}

// ParseNodes reads a number of nodes, or the least and the most: 4, 2-4.
func ParseNodes(v string) (least, most int32, err error) {
	lo, hi, err := walltime.ParseCountRange(v)
	if err != nil || lo < 1 || hi > MaxTasks {
		return 0, 0, refuse(Nodes, "'%s'; write N or LEAST-MOST", v)
	}
	return int32(lo), int32(hi), nil
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
