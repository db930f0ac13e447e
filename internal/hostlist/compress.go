package hostlist

import (
	"sort"
	"strconv"
	"strings"
)

// host is a name cut before its trailing digits.
type host struct {
	full   string
	prefix string
	num    int64
	digits int // 0: the name doesn't end in a digit
	padded bool
	// width is the padding of the range that the host is written in: 0 for
	// plain numbers. It is set by assignWidths.
	width int
}

func split(full string) host {
	i := len(full)
	for i > 0 && len(full)-i < maxDigits && full[i-1] >= '0' && full[i-1] <= '9' {
		i--
	}
	h := host{full: full, prefix: full[:i], digits: len(full) - i}
	for _, c := range []byte(full[i:]) {
		h.num = h.num*10 + int64(c-'0')
	}
	h.padded = h.digits > 1 && full[i] == '0'
	return h
}

// Compress returns the canonical list for a set of hosts: prefixes in the
// order in which they first appear, numbers ascending within a prefix, each
// host once. Names are taken as they are; a name with a bracket, comma or
// blank in it can't be written in a host list.
func Compress(hosts []string) string {
	var order []string
	byPrefix := map[string][]host{}
	for _, full := range hosts {
		if full == "" {
			continue
		}
		h := split(full)
		if _, seen := byPrefix[h.prefix]; !seen {
			order = append(order, h.prefix)
		}
		byPrefix[h.prefix] = append(byPrefix[h.prefix], h)
	}
	var w writer
	for _, prefix := range order {
		group := byPrefix[prefix]
		sortGroup(group)
		for i, h := range group {
			if i == 0 || h.full != group[i-1].full {
				w.add(h)
			}
		}
	}
	return w.close()
}

// CompressInOrder writes hosts as a list that expands to exactly the same
// hosts in the same order (scontrol show hostlist).
func CompressInOrder(hosts []string) string {
	var w writer
	for _, full := range hosts {
		if full != "" {
			w.add(split(full))
		}
	}
	return w.close()
}

// CompressSorted sorts hosts by prefix and number and writes them as a list,
// repetitions included (scontrol show hostlistsorted).
func CompressSorted(hosts []string) string {
	var w writer
	for _, full := range Sort(hosts) {
		w.add(split(full))
	}
	return w.close()
}

// Sort returns hosts in the order of CompressSorted: by prefix, names without
// a number first, then by number, so that n2 comes before n10. The argument is
// left as it is; empty names are dropped.
func Sort(hosts []string) []string {
	byPrefix := map[string][]host{}
	for _, full := range hosts {
		if full != "" {
			h := split(full)
			byPrefix[h.prefix] = append(byPrefix[h.prefix], h)
		}
	}
	prefixes := make([]string, 0, len(byPrefix))
	for p := range byPrefix {
		prefixes = append(prefixes, p)
	}
	sort.Strings(prefixes)
	sorted := make([]string, 0, len(hosts))
	for _, p := range prefixes {
		group := byPrefix[p]
		sortGroup(group)
		for _, h := range group {
			sorted = append(sorted, h.full)
		}
	}
	return sorted
}

// sortGroup orders hosts of one prefix: without a number, plain numbers, then
// padded numbers by width.
func sortGroup(group []host) {
	assignWidths(group)
	sort.SliceStable(group, func(i, j int) bool {
		a, b := group[i], group[j]
		if (a.digits == 0) != (b.digits == 0) {
			return a.digits == 0
		}
		if a.width != b.width {
			return a.width < b.width
		}
		if a.num != b.num {
			return a.num < b.num
		}
		return a.digits < b.digits
	})
}

// assignWidths decides whether a number without leading zeros, such as n10,
// continues a padded range (n08 n09 n10) or a plain one (n8 n9 n10). It can
// only be decided by the others: a plain number shorter than the narrowest
// padded one means that plain numbering is in use.
func assignWidths(group []host) {
	narrowest, shortest := 0, maxDigits+1
	widths := map[int]bool{}
	for _, h := range group {
		switch {
		case h.padded:
			widths[h.digits] = true
			if narrowest == 0 || h.digits < narrowest {
				narrowest = h.digits
			}
		case h.digits > 0:
			shortest = min(shortest, h.digits)
		}
	}
	plain := narrowest == 0 || shortest < narrowest
	for i := range group {
		h := &group[i]
		switch {
		case h.padded:
			h.width = h.digits
		case h.digits > 0 && !plain:
			for h.width = h.digits; !widths[h.width]; h.width-- {
			}
		}
	}
}

// writer builds a list from hosts added one by one. Hosts with the same prefix
// in a row share a bracket; consecutive numbers in it share a range.
type writer struct {
	out   strings.Builder
	open  bool // a group is being collected
	group host // any host of the group, for its prefix
	items []item
}

// item is one range of the open group. minWidth and maxWidth are the paddings
// under which every number so far prints as it was given.
type item struct {
	first, last        host
	minWidth, maxWidth int
}

func (w *writer) add(h host) {
	if !w.open || h.prefix != w.group.prefix || h.digits == 0 || w.group.digits == 0 {
		w.flush()
		w.open, w.group = true, h
	}
	lo, hi := 0, h.digits
	if h.padded {
		lo = h.digits
	}
	if n := len(w.items); n > 0 {
		last := &w.items[n-1]
		lo2, hi2 := max(lo, last.minWidth), min(hi, last.maxWidth)
		if h.num == last.last.num+1 && lo2 <= hi2 {
			last.last, last.minWidth, last.maxWidth = h, lo2, hi2
			return
		}
	}
	w.items = append(w.items, item{first: h, last: h, minWidth: lo, maxWidth: hi})
}

func (w *writer) flush() {
	if !w.open {
		return
	}
	if w.out.Len() > 0 {
		w.out.WriteByte(',')
	}
	if len(w.items) == 1 && w.items[0].first.num == w.items[0].last.num {
		w.out.WriteString(w.group.full)
	} else {
		w.out.WriteString(w.group.prefix)
		w.out.WriteByte('[')
		for i, it := range w.items {
			if i > 0 {
				w.out.WriteByte(',')
			}
			w.out.WriteString(it.first.full[len(w.group.prefix):])
			if it.last.num != it.first.num {
				w.out.WriteByte('-')
				w.out.WriteString(it.last.full[len(w.group.prefix):])
			}
		}
		w.out.WriteByte(']')
	}
	w.open, w.items = false, w.items[:0]
}

func (w *writer) close() string {
	w.flush()
	return w.out.String()
}

// CountText writes a number of nodes for people: 1 node, 3 nodes.
func CountText(n int) string {
	if n == 1 {
		return "1 node"
	}
	return strconv.Itoa(n) + " nodes"
}
