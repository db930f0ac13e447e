package gpuoom

// longest is more than the bytes of any of the words.
const longest = 64

// Watch looks for the words in an output that passes by, as Said does at its end.
type Watch struct {
	rest  []byte // the end of what has passed, in case a word goes on
	said  int    // 1 and up: one of the words; 0: none yet
	since int    // bytes that have passed after it
}

// See takes the next part.
func (w *Watch) See(data []byte) {
	if len(data) == 0 {
		return
	}
	w.since = min(w.since+len(data), 2*TailBytes)
	text := append(w.rest, data...)
	if k, at := last(text); k >= 0 {
		w.said, w.since = k+1, len(text)-at
	}
	w.rest = append(w.rest[:0], text[max(0, len(text)-longest):]...)
}

// FirstCode is the exit status of a process that has seen the first of the words; those of the others follow.
const FirstCode = 64

// Code gives the exit status for what was seen near the end, 0 for nothing.
func (w *Watch) Code() int {
	if w.said == 0 || w.since > TailBytes {
		return 0
	}
	return FirstCode + w.said - 1
}

// OfCode gives the words of an exit status; "": it means none.
func OfCode(code int) string {
	if k := code - FirstCode; k >= 0 && k < len(words) {
		return words[k]
	}
	return ""
}
