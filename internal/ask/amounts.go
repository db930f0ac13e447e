package ask

import (
	"errors"
	"iter"
	"math"
	"strconv"
	"strings"

	"gbatch/internal/walltime"
)

// Amount is one word of a list of resources, such as cpu=4, mem=8G, gres/gpu:a100=15% or license/matlab=1.
type Amount struct {
	Word string // all of it
	TRES string // cpu, gres/gpu:a100; a name behind / is as it was written; "" where a bare number stands
	Text string // what stands behind =
	Has  bool   // = stands there
}

// Amounts reads a list of resources word by word: TRES=, GrpTRES=, the column AllocTRES. gres/gpu:4 is gres/gpu=4.
func Amounts(list string) iter.Seq[Amount] {
	return func(yield func(Amount) bool) {
		for _, word := range splitList(list, ",") {
			if !yield(amount(word)) {
				return
			}
		}
	}
}

func amount(word string) Amount {
	name, text, has := strings.Cut(word, "=")
	if i := strings.LastIndexByte(name, ':'); !has && i > 0 {
		name, text, has = name[:i], name[i+1:], true
	}
	if !has && allDigits(name) {
		return Amount{Word: word, Text: name}
	}
	kind, of, named := strings.Cut(name, "/")
	if kind = strings.ToLower(kind); named {
		kind += "/" + of
	}
	return Amount{Word: word, TRES: kind, Text: text, Has: has}
}

// Count gives the amount: MiB of memory, a number of anything else. K, M and G are powers of 1024.
func (a *Amount) Count() (int64, error) {
	if a.TRES == "mem" {
		return walltime.ParseMemMiB(a.Text)
	}
	return parseUnits(a.Text, math.MaxInt64)
}

// Percent gives the amount in hundredths of a percent, from 0 to 10000; is says that it is a percentage.
func (a *Amount) Percent() (hundredths int64, is bool, err error) {
	text, is := strings.CutSuffix(a.Text, "%")
	if !is {
		return 0, false, nil
	}
	x, err := strconv.ParseFloat(text, 64)
	if err != nil || !(x >= 0 && x <= 100) {
		return 0, true, errors.New("it is not a percentage from 0% to 100%")
	}
	return int64(math.Round(x * 100)), true, nil
}

var errOutOfRange = errors.New("out of range")

// parseUnits reads a whole number with K, M or G behind it (powers of 1024), up to most.
func parseUnits(t string, most int64) (int64, error) {
	factor := int64(1)
	if n := len(t); n > 1 {
		switch t[n-1] | 0x20 {
		case 'k':
			factor = 1 << 10
		case 'm':
			factor = 1 << 20
		case 'g':
			factor = 1 << 30
		}
		if factor > 1 {
			t = t[:n-1]
		}
	}
	if !allDigits(t) {
		return 0, ErrNoCount
	}
	n, err := strconv.ParseInt(t, 10, 64)
	if err != nil || n > most/factor {
		return 0, errOutOfRange
	}
	return n * factor, nil
}
