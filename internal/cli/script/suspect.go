package script

import (
	"bytes"
	"strconv"
	"strings"

	"gbatch/internal/suggest"
)

// suspect warns about a comment that was likely meant as a directive: a word similar to SBATCH or GBATCH and then an
// option. People disable a directive with two comment signs (##SBATCH), so that gets no warning.
func (s *Script) suspect(n int, line string) {
	comment := strings.TrimLeft(line, " \t")
	indented := len(comment) < len(line)
	text := comment[1:]
	body := strings.TrimLeft(text, " \t")
	end := 0
	for end < len(body) && (body[end]|0x20 >= 'a' && body[end]|0x20 <= 'z' || body[end] == '_') {
		end++
	}
	word, rest := body[:end], strings.TrimLeft(body[end:], " \t")
	if word == "" || !option(rest) {
		return
	}
	want, edits := "SBATCH", suggest.Distance(word, "SBATCH")
	if d := suggest.Distance(word, "GBATCH"); d < edits {
		want, edits = "GBATCH", d
	}
	if edits > 2 {
		return
	}
	found := strings.TrimSpace(comment[:len(comment)-len(body)] + word)
	switch {
	case strings.TrimSpace(found) == "#"+want && indented:
		s.warn(n, "ignored: #"+want+" counts only in the first column; remove the blanks before it")
	default:
		s.warn(n, "ignored: "+strconv.Quote(found)+" is a comment; did you mean #"+want+"?")
	}
}

// option reports whether a comment's text continues as a directive would.
func option(rest string) bool {
	return len(rest) > 1 && rest[0] == '-' && rest[1] != ' ' && strings.Trim(rest, "-") != "" || rest == "hetjob"
}

// lateLines finds directives after the first command, which have no effect. Those in a here document belong to a script
// that this one writes.
type lateLines struct {
	until string // the here document's last line; "" outside
	tabs  bool   // <<-: leading tabs don't count
}

func (l *lateLines) line(s *Script, n int, raw []byte) {
	if l.until != "" {
		if l.tabs {
			raw = bytes.TrimLeft(raw, "\t")
		}
		if string(bytes.TrimRight(raw, "\r")) == l.until {
			l.until = ""
		}
		return
	}
	if len(raw) > 0 && raw[0] == '#' {
		if rest, ok := cutPrefix(string(raw)); ok && option(strings.TrimLeft(rest, " \t")) {
			s.warn(n, "ignored: "+string(raw[:7])+" comes after the first command (line "+strconv.Itoa(s.Command)+
				"); move it above that")
		}
		return
	}
	l.command(raw)
}

// command looks for the start of a here document in a line of shell.
func (l *lateLines) command(raw []byte) {
	_, after, ok := bytes.Cut(raw, []byte("<<"))
	if !ok || len(after) == 0 || after[0] == '<' {
		return
	}
	if after[0] == '-' {
		l.tabs, after = true, after[1:]
	} else {
		l.tabs = false
	}
	after = bytes.TrimLeft(after, " \t")
	end := bytes.IndexAny(after, " \t\r;|&<>)")
	if end < 0 {
		end = len(after)
	}
	l.until = strings.NewReplacer("'", "", `"`, "", `\`, "").Replace(string(after[:end]))
	// 1<<3 is arithmetic; a number is not used as a delimiter.
	if l.until != "" && strings.Trim(l.until, "0123456789") == "" {
		l.until = ""
	}
}
