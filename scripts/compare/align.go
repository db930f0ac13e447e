package main

// What makes two outputs comparable: what must differ is taken out of their lines, and lines that belong together are
// paired.

import (
	"regexp"
	"slices"
	"strings"
)

var (
	moment = regexp.MustCompile(`\b202[5-9]-\d\d-\d\dT\d\d:\d\d:\d\d\b|` +
		`\b[A-Z][a-z]{2} [A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d 20\d\d`)
	tasks    = regexp.MustCompile(`(?m)(?:^| +)([0-9]+)_\[[0-9][0-9,:%-]*\]?(?: +$)?`)
	digits   = regexp.MustCompile(`[0-9][0-9.:]*[KMGT]?\b`)
	manyGaps = regexp.MustCompile(`  +`)
)

// lines makes comparable lines of a command's output.
func lines(text, kind string) []string {
	text = moment.ReplaceAllString(text, "<moment>")
	text = tasks.ReplaceAllString(text, " ${1}_[tasks]") // 22.05 writes [1,3,5] after an update, newer ones [1-5:2]
	if strings.HasSuffix(kind, "~") {
		text = manyGaps.ReplaceAllString(digits.ReplaceAllString(text, "9"), " ")
	}
	switch strings.TrimSuffix(kind, "~") {
	case "keys":
		return pairs(text)
	case "config":
		var out []string
		for l := range strings.Lines(text) {
			if key, _, ok := strings.Cut(l, " "); ok && strings.Contains(l, "=") {
				out = append(out, key)
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	out := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := range out {
		out[i] = strings.TrimRight(out[i], " ") // filling at the end of a line is no difference
	}
	return out
}

var keyAt = regexp.MustCompile(`(^| )([A-Za-z][A-Za-z/:&-]*)=`)

// moving are keys whose values differ from run to run or host to host.
var moving = regexp.MustCompile(`^(RunTime|AllocNode:Sid|CPULoad|FreeMem|BootTime|SlurmdStartTime|LastBusyTime|OS|` +
	`Version|NodeAddr|NodeHostName|Port|Arch|Priority|SecsPreSuspend|LastSchedEval|AccrueTime)=`)

// pairs makes of scontrol's text one line for each KEY=VALUE, with the block's number in front.
func pairs(text string) []string {
	var out []string
	for block := range strings.SplitSeq(text, "\n\n") {
		first := len(out)
		for l := range strings.Lines(block) {
			l = strings.TrimSpace(l)
			at := keyAt.FindAllStringSubmatchIndex(l, -1)
			if len(at) == 0 && l != "" {
				out = append(out, l)
			}
			for i, m := range at {
				end := len(l)
				if i+1 < len(at) {
					end = at[i+1][0]
				}
				p := l[m[4]:end]
				if moving.MatchString(p) {
					p, _, _ = strings.Cut(p, "=")
				}
				out = append(out, strings.TrimRight(p, " "))
			}
		}
		out = append(out[:first], oneTRES(out[first:])...)
	}
	return out
}

// oneTRES makes of a job's ReqTRES and AllocTRES the one TRES that Slurm had before 23.02: what the job has, or, before
// it has started, what it asks for.
func oneTRES(block []string) []string {
	req := slices.IndexFunc(block, func(p string) bool { return strings.HasPrefix(p, "ReqTRES=") })
	alloc := slices.IndexFunc(block, func(p string) bool { return strings.HasPrefix(p, "AllocTRES=") })
	if req < 0 || alloc < 0 {
		return block
	}
	tres := strings.TrimPrefix(block[alloc], "Alloc")
	if tres == "TRES=(null)" {
		tres = strings.TrimPrefix(block[req], "Req")
	}
	block[req] = tres
	return slices.Delete(block, alloc, alloc+1)
}

// align pairs lines: equal ones first, by the longest common subsequence, then what belongs together. With a kind only
// lines of the same key do; else all do, in order.
func align(a, b []string, kind string) [][2]string {
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out [][2]string
	var left, right []string
	flush := func() {
		out = append(out, pairUp(left, right, kind)...)
		left, right = nil, nil
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			flush()
			out = append(out, [2]string{a[i], b[j]})
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			left, i = append(left, a[i]), i+1
		default:
			right, j = append(right, b[j]), j+1
		}
	}
	flush()
	return out
}

const nothing = "<nothing>"

// pairUp pairs lines of which none is equal.
func pairUp(left, right []string, kind string) [][2]string {
	var out [][2]string
	keyed := strings.HasPrefix(kind, "keys") || kind == "config"
	keyOf := func(line string) string { key, _, _ := strings.Cut(line, "="); return key }
	for k, l := range left {
		same := k
		if keyed {
			same = slices.IndexFunc(right, func(r string) bool { return keyOf(r) == keyOf(l) })
		}
		if same < 0 || same >= len(right) {
			out = append(out, [2]string{l, nothing})
			continue
		}
		out = append(out, [2]string{l, right[same]})
		if keyed {
			right = slices.Delete(right, same, same+1)
		}
	}
	if !keyed {
		right = right[min(len(left), len(right)):]
	}
	for _, r := range right {
		out = append(out, [2]string{nothing, r})
	}
	return out
}
