// Package suggest finds what a person probably meant: the names nearest to a misspelt word.
//
// Distance is Damerau-Levenshtein in its restricted form (optimal string alignment: insert, delete,
// replace, swap two neighbours, no substring edited twice; Boytsov 2011, "Indexing methods for
// approximate dictionary searching", section 2.2), over runes, without regard to case. It owns no names
// and prints nothing.
package suggest

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
)

const (
	// MaxNames is how many names Nearest returns at most: a longer list isn't a suggestion any more.
	MaxNames = 3
	// MaxRunes is the longest word or name that is compared; longer ones are never near anything.
	MaxRunes = 64
)

// Distance returns the number of single edits between a and b, or MaxRunes+1 where either is longer
// than MaxRunes runes.
func Distance(a, b string) int {
	var ra, rb [MaxRunes]rune
	na, nb := lower(&ra, a), lower(&rb, b)
	if na < 0 || nb < 0 {
		return MaxRunes + 1
	}
	// Three rows are enough: a swap looks two rows back.
	var rows [3][MaxRunes + 1]int
	for j := 0; j <= nb; j++ {
		rows[0][j] = j
	}
	for i := 1; i <= na; i++ {
		row, prev, prev2 := &rows[i%3], &rows[(i+2)%3], &rows[(i+1)%3]
		row[0] = i
		for j := 1; j <= nb; j++ {
			cost := 1
			if ra[i-1] == rb[j-1] {
				cost = 0
			}
			d := min(row[j-1]+1, prev[j]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && ra[i-1] == rb[j-2] && ra[i-2] == rb[j-1] {
				d = min(d, prev2[j-2]+1)
			}
			row[j] = d
		}
	}
	return rows[na%3][nb]
}

// lower writes s in lower case into dst and returns its length in runes, or -1 where it doesn't fit.
func lower(dst *[MaxRunes]rune, s string) int {
	n := 0
	for _, r := range s {
		if n == MaxRunes {
			return -1
		}
		dst[n] = unicode.ToLower(r)
		n++
	}
	return n
}

// Nearest returns up to MaxNames of names that are near word, nearest first and otherwise in the given
// order, each once. Near means: one edit for a word of up to four runes, two up to eight, three beyond;
// or word starts the name or the name starts word, with three runes or more. A word that is one of the
// names apart from case is distance 0 and comes first.
func Nearest(word string, names []string) []string {
	type candidate struct {
		name string
		d    int
	}
	runes := len([]rune(word))
	limit := 1
	switch {
	case runes == 0 || runes > MaxRunes:
		return nil
	case runes > 8:
		limit = 3
	case runes > 4:
		limit = 2
	}
	var near []candidate
	for _, name := range names {
		if name == "" || slices.ContainsFunc(near, func(c candidate) bool { return c.name == name }) {
			continue
		}
		d := Distance(word, name)
		// Two short words of equal length with nothing in common are one edit per letter apart.
		if d <= limit && d < runes {
			near = append(near, candidate{name, d})
			continue
		}
		lw, ln := strings.ToLower(word), strings.ToLower(name)
		if min(len(lw), len(ln)) >= 3 && (strings.HasPrefix(ln, lw) || strings.HasPrefix(lw, ln)) {
			near = append(near, candidate{name, limit + 1})
		}
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return cmp.Compare(a.d, b.d) })
	if len(near) > MaxNames {
		near = near[:MaxNames]
	}
	out := make([]string, len(near))
	for i, c := range near {
		out[i] = c.name
	}
	return out
}

// Question turns near names into a question, each name with prefix before it: "did you mean --time?",
// "did you mean --time, --tmp or --tasks?". It returns "" for none.
func Question(prefix string, near []string) string {
	if len(near) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("did you mean ")
	for i, n := range near {
		switch {
		case i == 0:
		case i == len(near)-1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(prefix)
		b.WriteString(n)
	}
	b.WriteByte('?')
	return b.String()
}
