package noded

import "fmt"

// statetable.go has the common code of the tables of attempts, steps and steps' parts on other nodes. A table has a
// cell for every pair of phase and happening; the tests hold each to its golden file.

// cell is what a happening does in a phase: the next phase, and an act.
type cell[P, A ~uint8] struct {
	next P
	do   A
}

// wordFor gives the word for a phase, a happening or an act, and its number where it has none.
func wordFor[T ~uint8](words []string, what string, x T) string {
	if int(x) < len(words) {
		return words[x]
	}
	return fmt.Sprintf("%s %d", what, uint8(x))
}
