package hostlist

import "strconv"

// Expand returns the hosts that expr stands for, in its order and with its
// repetitions. An empty expression is an empty list. Errors are *Error.
func Expand(expr string) ([]string, error) {
	names, err := parse(expr)
	if err != nil {
		return nil, err
	}
	total := 0
	for _, n := range names {
		total += n.count()
	}
	hosts := make([]string, 0, total)
	var buf []byte
	for _, n := range names {
		if n.brackets() > 2 {
			hosts = n.expandMany(hosts)
			continue
		}
		hosts = n.expand(hosts, buf[:0], 0)
	}
	return hosts, nil
}

func (n name) brackets() (k int) {
	for i := range n {
		if n[i].spans != nil {
			k++
		}
	}
	return k
}

// expandMany appends the hosts of a name with several brackets in Slurm's order: the last bracket changes fastest, then
// the first one, and the one before the last slowest.
func (n name) expandMany(hosts []string) []string {
	var at []int
	for i := range n {
		if n[i].spans != nil {
			at = append(at, i)
		}
	}
	last := at[len(at)-1]
	chosen := make(name, len(n))
	copy(chosen, n)
	var choose func(k int)
	choose = func(k int) {
		if k < 0 {
			hosts = chosen.expand(hosts, nil, 0)
			return
		}
		for _, s := range n[at[k]].spans {
			for v := s.lo; v <= s.hi; v++ {
				chosen[at[k]].spans = []span{{lo: v, hi: v, width: s.width}}
				choose(k - 1)
			}
		}
	}
	chosen[last].spans = n[last].spans
	choose(len(at) - 2)
	return hosts
}

// Count returns how many hosts expr stands for, repetitions included.
func Count(expr string) (int, error) {
	names, err := parse(expr)
	if err != nil {
		return 0, err
	}
	total := 0
	for _, n := range names {
		total += n.count()
	}
	return total, nil
}

// expand appends every host of parts n[i:] behind the text built so far.
func (n name) expand(hosts []string, built []byte, i int) []string {
	if i == len(n) {
		return append(hosts, string(built))
	}
	if n[i].spans == nil {
		return n.expand(hosts, append(built, n[i].text...), i+1)
	}
	for _, s := range n[i].spans {
		for v := s.lo; v <= s.hi; v++ {
			hosts = n.expand(hosts, appendPadded(built, v, s.width), i+1)
		}
	}
	return hosts
}

func appendPadded(buf []byte, v int64, width int) []byte {
	for digits := countDigits(v); digits < width; digits++ {
		buf = append(buf, '0')
	}
	return strconv.AppendInt(buf, v, 10)
}

func countDigits(v int64) int {
	n := 1
	for ; v >= 10; v /= 10 {
		n++
	}
	return n
}

// Contains reports whether host is one of the hosts that expr stands for,
// without expanding expr.
func Contains(expr, host string) (bool, error) {
	names, err := parse(expr)
	if err != nil {
		return false, err
	}
	for _, n := range names {
		if n.matches(host, 0) {
			return true, nil
		}
	}
	return false, nil
}

// matches reports whether parts n[i:] can spell exactly rest.
func (n name) matches(rest string, i int) bool {
	if i == len(n) {
		return rest == ""
	}
	if text := n[i].text; n[i].spans == nil {
		return len(rest) >= len(text) && rest[:len(text)] == text && n.matches(rest[len(text):], i+1)
	}
	var v int64
	for k := 0; k < len(rest) && k < maxDigits && rest[k] >= '0' && rest[k] <= '9'; k++ {
		v = v*10 + int64(rest[k]-'0')
		digits := k + 1
		for _, s := range n[i].spans {
			if v >= s.lo && v <= s.hi && digits == max(s.width, countDigits(v)) {
				if n.matches(rest[digits:], i+1) {
					return true
				}
				break // another range with the same number can't help
			}
		}
	}
	return false
}
