package complete

import (
	"fmt"
	"io"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
)

// Shells are those that ask. They differ in what they make of the lines.
var Shells = []string{"bash", "fish", "zsh"}

// maxWords is how many lines a shell gets at most.
const maxWords = 2000

// Run completes the last of a command's words and gives the exit code.
func Run(e *env.Env, p *getopt.Parser, words []string) int {
	at := p.Place(words)
	o := &out{w: e.Stdout, typed: at.Value}
	switch {
	case at.Names:
		for _, w := range p.Names() {
			if w.Text != "--" && strings.HasPrefix(w.Text, at.Value) {
				o.line(w.Text, w.Help)
			}
		}
	default:
		v := p.OperandsAt(&at)
		if at.Option != nil {
			v = valuesOf(p, at.Option, at.Value)
		}
		o.head, o.typed = at.Head+at.Value[:v.Head], at.Value[v.Head:]
		o.values(e, v)
	}
	return 0
}

// out prints the words that fit.
type out struct {
	w     io.Writer
	head  string // what stands before the value in the word
	typed string // the beginning of the value, without the parts of a list that are complete
	n     int
}

// values prints those of a place.
func (o *out) values(e *env.Env, v getopt.Values) {
	var have []string
	if v.List {
		if i := strings.LastIndexByte(o.typed, ','); i >= 0 {
			have = strings.Split(o.typed[:i], ",")
			o.head, o.typed = o.head+o.typed[:i+1], o.typed[i+1:]
		}
	}
	switch v.Kind {
	case getopt.Files:
		o.line(":files", "")
	case getopt.Dirs:
		o.line(":dirs", "")
	case getopt.Commands:
		o.line(":commands", "")
	case getopt.Users:
		o.line(":users", "") // the host's; the cluster's follow
	}
	words := v.Words
	if v.Kind >= getopt.Jobs {
		words = append(words, live(e, v.Kind)...)
	}
	seen := map[string]bool{}
	for _, w := range have {
		seen[w] = true
	}
	for _, w := range words {
		if !seen[w.Text] && len(w.Text) >= len(o.typed) && strings.EqualFold(w.Text[:len(o.typed)], o.typed) {
			seen[w.Text] = true
			o.line(o.head+w.Text, w.Help)
		}
	}
}

// line prints one. A help text is cut at the end of its first sentence or line, as a list of words has little room.
func (o *out) line(word, help string) {
	if o.n++; o.n > maxWords || strings.ContainsAny(word, "\t\n") {
		return
	}
	help, _, _ = strings.Cut(help, "\n")
	help, _, _ = strings.Cut(strings.ReplaceAll(help, "\t", " "), "; ")
	_, _ = fmt.Fprintf(o.w, "%s\t%s\n", word, help) // the shell has gone
}
