package getopt

import (
	"cmp"
	"strings"
	"unicode/utf8"
)

const (
	// Columns is how wide help and usage are printed.
	Columns = 80
	// helpColumn is where the help texts begin.
	helpColumn = 30
)

// Help returns the text of --help: usage line, the options under their groups, aligned, and the options
// that Slurm has and gbatch refuses.
func (p *Parser) Help() string {
	var b strings.Builder
	syntax := p.c.Syntax
	if syntax == "" {
		syntax = strings.TrimSuffix("[OPTIONS] "+p.c.Operands, " ")
	}
	b.WriteString("Usage: " + p.c.Program + " " + syntax + "\n")
	if p.c.About != "" {
		b.WriteString("\n")
		wrap(&b, p.c.About, 0, 0)
	}
	if p.c.Heading != "" {
		b.WriteString("\n" + p.c.Heading + ":\n")
	}
	for _, group := range p.groups() {
		if group != "" || p.c.Heading == "" {
			b.WriteString("\n" + cmp.Or(group, "Options") + ":\n")
		}
		for i := range p.c.Options {
			if o := &p.c.Options[i]; o.Group == group && shown(o) {
				p.helpLine(&b, o)
			}
		}
	}
	if refused := p.refused(); refused != "" {
		b.WriteString("\nNot in gbatch yet (each one, when given, says what to use instead):\n")
		wrap(&b, refused, 2, 2)
	}
	if p.c.Epilogue != "" {
		b.WriteString("\n")
		for line := range strings.Lines(p.c.Epilogue) {
			indent := len(line) - len(strings.TrimLeft(line, " "))
			wrap(&b, line, indent, 2*indent)
		}
	}
	return b.String()
}

// Usage returns the text of --usage: every option in brackets, and no brackets within them.
func (p *Parser) Usage() string {
	switch {
	case p.c.UsageIsHelp:
		return p.Help()
	case p.c.Brief != "":
		return "Usage: " + p.c.Program + " " + p.c.Brief + "\n"
	}
	words := []string{"Usage: " + p.c.Program}
	var letters strings.Builder
	for i := range p.c.Options {
		if o := &p.c.Options[i]; shown(o) && o.Short != 0 && o.Arg == None {
			letters.WriteRune(o.Short)
		}
	}
	if letters.Len() > 0 {
		words = append(words, "[-"+letters.String()+"]")
	}
	for i := range p.c.Options {
		o := &p.c.Options[i]
		switch {
		case !shown(o) || o.Arg == None && o.Short != 0:
		case o.Short != 0 && o.Arg == Required:
			words = append(words, "[-"+string(o.Short)+" "+metavar(o)+"]")
		case o.Arg == Optional:
			words = append(words, "["+o.display()+"]")
		default:
			words = append(words, "["+spelling(o)+"]")
		}
	}
	if p.c.Operands != "" {
		words = append(words, p.c.Operands)
	}
	var b strings.Builder
	wrapWords(&b, words, 0, len(words[0])+1)
	return b.String()
}

func shown(o *Option) bool { return !o.Hidden && o.Refused == "" }

// groups returns the headings in the order of their first option.
func (p *Parser) groups() []string {
	var groups []string
next:
	for i := range p.c.Options {
		o := &p.c.Options[i]
		if !shown(o) {
			continue
		}
		for _, g := range groups {
			if g == o.Group {
				continue next
			}
		}
		groups = append(groups, o.Group)
	}
	return groups
}

func (p *Parser) refused() string {
	var names []string
	for i := range p.c.Options {
		if o := &p.c.Options[i]; o.Refused != "" && !o.Hidden {
			names = append(names, o.display())
		}
	}
	return strings.Join(names, " ")
}

func metavar(o *Option) string {
	if o.Metavar == "" {
		return "value"
	}
	return o.Metavar
}

// spelling is o with its value: --time=minutes, --nice[=value], -x value.
func spelling(o *Option) string {
	eq := "="
	if o.Name == "" {
		eq = ""
	}
	switch o.Arg {
	case Required:
		if o.Name == "" {
			eq = " "
		}
		return o.display() + eq + metavar(o)
	case Optional:
		return o.display() + "[" + eq + metavar(o) + "]"
	}
	return o.display()
}

// helpLine writes an option's entry; a name too long for its column has the text on the next line.
func (p *Parser) helpLine(b *strings.Builder, o *Option) {
	entry := "      "
	if o.Short != 0 {
		entry = "  -" + string(o.Short)
		if o.Name != "" {
			entry += ", "
		}
	}
	if o.Name != "" && p.c.Colons && o.Arg == Required {
		entry += o.display() + ": " + metavar(o)
	} else if o.Name != "" {
		entry += spelling(o)
	} else if o.Arg != None {
		entry += strings.TrimPrefix(spelling(o), o.display())
	}
	text := o.Help
	if o.Note != "" && !o.NoteAside {
		text += " (accepted, without effect: " + o.Note + ")"
	}
	b.WriteString(entry)
	if n := utf8.RuneCountInString(entry); n+2 > helpColumn {
		b.WriteString("\n")
		wrap(b, text, helpColumn, helpColumn)
	} else {
		b.WriteString(strings.Repeat(" ", helpColumn-n))
		wrapFrom(b, text, helpColumn, helpColumn)
	}
}

// wrap writes text in lines of at most Columns, the first indented by first and the others by hang.
func wrap(b *strings.Builder, text string, first, hang int) {
	wrapWords(b, strings.Fields(text), first, hang)
}

func wrapWords(b *strings.Builder, words []string, first, hang int) {
	b.WriteString(strings.Repeat(" ", first))
	fill(b, words, first, hang)
}

// wrapFrom is wrap with the cursor already at column at.
func wrapFrom(b *strings.Builder, text string, at, hang int) { fill(b, strings.Fields(text), at, hang) }

func fill(b *strings.Builder, words []string, at, hang int) {
	start := true
	for _, w := range words {
		n := utf8.RuneCountInString(w)
		switch {
		case start:
		case at+1+n > Columns:
			b.WriteString("\n" + strings.Repeat(" ", hang))
			at = hang
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(w)
		at += n
		start = false
	}
	b.WriteString("\n")
}
