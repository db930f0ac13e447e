package getopt

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// MaxProblems is how many wrong values Apply reports at once.
const MaxProblems = 20

// Apply calls the Set functions, weakest source first (see the package's comment), and reports every
// value that one of them refused, up to MaxProblems, joined in one error. It is called once, when all
// sources have been read.
func (p *Parser) Apply() error {
	p.yield()
	if err := p.clash(); err != nil {
		return err
	}
	var problems []error
	for source := FromConfig; source <= FromFilter; source++ {
		for i := range p.found {
			f := &p.found[i]
			if f.origin.Source != source || p.overridden(f) {
				continue
			}
			o := &p.c.Options[f.option]
			if o.Set == nil {
				continue
			}
			if err := o.Set(f.value); err != nil {
				problems = append(problems, p.invalid(o, f, err))
				if len(problems) == MaxProblems {
					return errors.Join(problems...)
				}
			}
		}
	}
	if len(problems) == 1 {
		return problems[0]
	}
	return errors.Join(problems...)
}

// yield leaves out what Rival excludes.
func (p *Parser) yield() {
	typed := func(i int) bool { return p.strongest[i] > FromEnv }
	for i := range p.c.Options {
		o := &p.c.Options[i]
		if o.Rival == nil || p.strongest[i] == NotGiven {
			continue
		}
		said, leave := false, false
		for j := range p.c.Options {
			name := p.c.Options[j].Name
			if value, given := p.Value(name); j == i || !given || !o.Rival(name, value) {
				continue
			}
			switch {
			case typed(i) && !typed(j):
				p.drop(j)
			case typed(j):
				said, leave = said || typed(i), true
			}
		}
		if said {
			p.yielded = append(p.yielded, o.YieldText)
		}
		if leave {
			p.drop(i)
		}
	}
}

// drop forgets that an option was given.
func (p *Parser) drop(i int) {
	p.strongest[i] = NotGiven
	p.found = slices.DeleteFunc(p.found, func(f occurrence) bool { return f.option == i })
}

// Yielded returns a sentence for each option that was left out because of another one.
func (p *Parser) Yielded() []string { return p.yielded }

// clash finds two options of a slot that exclude each other and come from the same source, the strongest.
func (p *Parser) clash() error {
	for i := range p.c.Options {
		o, from := &p.c.Options[i], p.strongest[i]
		if o.Clash == "" || from == NotGiven {
			continue
		}
		same, stronger := false, false
		for j := range p.c.Options {
			if j != i && p.c.Options[j].Slot == o.Slot {
				same, stronger = same || p.strongest[j] == from, stronger || p.strongest[j] > from
			}
		}
		if same && !stronger {
			text := o.Clash
			if from == FromEnv {
				text = o.ClashEnv
			}
			return &Error{Program: p.c.Program, Option: o.Name, Text: text, Fatal: true}
		}
	}
	return nil
}

// overridden says whether a stronger source gave the same option or one of the same slot.
func (p *Parser) overridden(f *occurrence) bool {
	if p.strongest[f.option] > f.origin.Source {
		return true
	}
	slot := p.c.Options[f.option].Slot
	if slot == "" {
		return false
	}
	for i := range p.c.Options {
		if p.strongest[i] > f.origin.Source && p.c.Options[i].Slot == slot {
			return true
		}
	}
	return false
}

// Given returns where the option with this long name was given, the strongest source and there the last
// place; the zero Origin (NotGiven) where it wasn't. It may be asked before Apply.
func (p *Parser) Given(name string) Origin {
	f := p.last(name)
	if f == nil {
		return Origin{}
	}
	return f.origin
}

// Value returns what the option with this long name was last given by its strongest source. It may be
// asked before Apply: a command that must know one option (--wrap) to find its other sources does.
func (p *Parser) Value(name string) (value string, given bool) {
	f := p.last(name)
	if f == nil {
		return "", false
	}
	return f.value, true
}

func (p *Parser) last(name string) *occurrence {
	for i := len(p.found) - 1; i >= 0; i-- {
		f := &p.found[i]
		if p.c.Options[f.option].Name == name && p.strongest[f.option] == f.origin.Source {
			return f
		}
	}
	return nil
}

// Notes returns a line for each option that was given and has no effect here, once each.
func (p *Parser) Notes() []string { return p.notes(FromConfig) }

// TypedNotes is Notes for the options of the command line only.
func (p *Parser) TypedNotes() []string { return p.notes(FromArgs) }

func (p *Parser) notes(least Source) []string {
	var notes []string
	for i := range p.c.Options {
		o := &p.c.Options[i]
		if o.Note != "" && p.strongest[i] != NotGiven && p.strongest[i] >= least {
			notes = append(notes, p.c.Program+": note: "+o.display()+" has no effect in gbatch: "+o.Note)
		}
	}
	return notes
}

// Defined is one option that is in force.
type Defined struct {
	Name  string
	Value string // "set" for an option without a value
}

// Defined lists the options that were given, by name, each with the last value of its strongest source; of one that is
// counted (-vv), the number.
func (p *Parser) Defined() []Defined {
	last, given := map[int]*occurrence{}, map[int]int{}
	for i := range p.found {
		f := &p.found[i]
		if p.overridden(f) {
			continue
		}
		last[f.option] = f
		given[f.option] += times(f.value)
	}
	var out []Defined
	for i, f := range last {
		if p.c.Options[i].isVariable() {
			continue
		}
		d := Defined{Name: p.c.Options[i].Name, Value: f.value}
		switch {
		case d.Name == "verbose":
			d.Value = strconv.Itoa(given[i])
		case d.Value == "":
			d.Value = "set"
		}
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Defined) int { return strings.Compare(a.Name, b.Name) })
	return out
}
