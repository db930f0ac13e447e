package walltime

import (
	"strconv"
	"strings"
)

const (
	memForms = "a whole number with an optional unit K, M, G or T, such as 4000, 4000M or 4G (no unit: MiB)"
	// maxMemMiB keeps sums over nodes and jobs inside an int64: 2^40 MiB are an exbibyte.
	maxMemMiB = 1 << 40
)

// ParseMemMiB reads a memory size as Slurm's options take it: a whole number
// with K, M, G or T, in any case, with or without a B behind it. Without a unit
// it is MiB. K is rounded up to a whole MiB.
func ParseMemMiB(s string) (int64, error) {
	wrong := func(why string) (int64, error) {
		return 0, &Error{What: "memory size", Value: s, Why: why, Forms: memForms}
	}
	digits := 0
	for digits < len(s) && s[digits] >= '0' && s[digits] <= '9' {
		digits++
	}
	switch {
	case s == "":
		return wrong("nothing given")
	case s[0] == '-':
		return wrong("negative")
	case digits == 0:
		return wrong("it doesn't start with a number")
	}
	n, err := strconv.ParseInt(s[:digits], 10, 64)
	if err != nil {
		return wrong("too large")
	}
	factor := int64(1)
	switch unit := strings.ToUpper(s[digits:]); unit {
	case "K", "KB":
		n = n/1024 + min(n%1024, 1)
	case "", "M", "MB":
	case "G", "GB":
		factor = 1 << 10
	case "T", "TB":
		factor = 1 << 20
	default:
		if strings.HasPrefix(unit, ".") {
			return wrong("only whole numbers; take the next smaller unit")
		}
		return wrong("unknown unit " + strconv.Quote(s[digits:min(len(s), digits+8)]))
	}
	if n > maxMemMiB/factor {
		return wrong("too large")
	}
	return n * factor, nil
}

// FormatMem writes a size in MiB as Slurm does: in the largest unit that keeps
// it whole, "4G" but "4000M"; nothing is "0".
func FormatMem(mib int64) string {
	return FormatExact(mib, 'M')
}

// units are the binary prefixes in the order of their sizes.
const units = "KMGTPE"

// FormatExact writes a size given in unit ('K', 'M', 'G', 'T', 'P', or 0 for
// none) in the largest unit that keeps it whole: 2048 of 'K' is "2M", 2049 of
// 'K' is "2049K". Zero has no unit.
func FormatExact(n int64, unit byte) string {
	if n == 0 {
		return "0"
	}
	i := strings.IndexByte(units, unit)
	for n%1024 == 0 && i+1 < len(units) {
		n /= 1024
		i++
	}
	text := strconv.FormatInt(n, 10)
	if i >= 0 {
		text += units[i : i+1]
	}
	return text
}

// FormatRounded writes a size in MiB in the unit that people would choose, with
// two decimals where it isn't whole: "62.50G", "250G". Slurm writes the memory
// of nodes and partitions so in TRES.
func FormatRounded(mib int64) string {
	to := strings.IndexByte(units, 'M')
	for n := mib; n >= 1024 && to+1 < len(units); n /= 1024 {
		to++
	}
	return FormatIn(mib, 'M', units[to])
}

// FormatIn writes a size given in unit from in unit to, as sacct --units does:
// "0.01G"; whole numbers have no decimals, zero no unit. Units are as in
// [FormatExact].
func FormatIn(n int64, from, to byte) string {
	if n == 0 {
		return "0"
	}
	value := float64(n)
	steps := strings.IndexByte(units, to) - strings.IndexByte(units, from)
	for ; steps > 0; steps-- {
		value /= 1024
	}
	for ; steps < 0; steps++ {
		value *= 1024
	}
	text := strconv.FormatFloat(value, 'f', 2, 64)
	text = strings.TrimSuffix(text, ".00")
	if i := strings.IndexByte(units, to); i >= 0 {
		text += units[i : i+1]
	}
	return text
}
