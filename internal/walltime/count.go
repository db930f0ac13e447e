package walltime

import (
	"strconv"
	"strings"
)

const (
	countForms = "a whole number, with k (1024) or m (1048576) behind it if you like"
	rangeForms = "a number such as 4, or a range such as 2-4"
	// maxCount is the largest count; Slurm keeps counts in 32 bits.
	maxCount = 1<<31 - 1
)

// ParseCount reads a count of nodes, tasks or CPUs: a whole number, "2k" for
// 2048, "1m" for 1048576.
func ParseCount(s string) (int64, error) {
	wrong := func(why string) (int64, error) {
		return 0, &Error{What: "count", Value: s, Why: why, Forms: countForms}
	}
	digits, factor := s, int64(1)
	if n := len(s); n > 0 {
		switch s[n-1] {
		case 'k', 'K':
			digits, factor = s[:n-1], 1<<10
		case 'm', 'M':
			digits, factor = s[:n-1], 1<<20
		}
	}
	switch {
	case s == "":
		return wrong("nothing given")
	case strings.HasPrefix(s, "-"):
		return wrong("negative")
	case digits == "" || strings.Trim(digits, "0123456789") != "":
		return wrong("")
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > maxCount/factor {
		return wrong("too large")
	}
	return n * factor, nil
}

// ParseCountRange reads --nodes: "4" is 4 to 4, "2-4" is 2 to 4, "-4" is 1 to 4.
func ParseCountRange(s string) (least, most int64, err error) {
	wrong := func(why string) (int64, int64, error) {
		return 0, 0, &Error{What: "count", Value: s, Why: why, Forms: rangeForms}
	}
	from, to, isRange := strings.Cut(s, "-")
	if !isRange {
		to = from
	}
	if from == "" && isRange {
		from = "1"
	}
	if least, err = ParseCount(from); err != nil {
		return wrong("")
	}
	if most, err = ParseCount(to); err != nil {
		return wrong("")
	}
	if most < least {
		return wrong("the range runs backwards")
	}
	return least, most, nil
}
