package getopt

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Source says who gave an option. A greater one is stronger.
type Source uint8

const (
	NotGiven Source = iota
	FromConfig
	FromDirective
	FromEnv
	FromArgs
	FromFilter // a program of the site, which has seen what the others gave
)

// MaxOccurrences is how many options one Parser takes from all sources together.
const MaxOccurrences = 10_000

// Origin is the place an option was given at.
type Origin struct {
	Source Source
	Text   string // "SBATCH_TIMELIMIT", "job.sh line 3"; "" for the command line
}

// occurrence is one option as given, not yet applied.
type occurrence struct {
	option int
	value  string
	origin Origin
}

// Parser collects options from all sources and applies them. It serves one call of a command.
type Parser struct {
	c     Config
	found []occurrence
	// strongest[i] is the strongest source that gave option i.
	strongest []Source
	yielded   []string // see Yielded
}

// New returns a Parser for a command.
func New(c Config) *Parser {
	return &Parser{c: c, strongest: make([]Source, len(c.Options)), found: make([]occurrence, 0, 16)}
}

// Parse is for commands without a script: Args, Env and Apply. lookup is os.LookupEnv; nil leaves the environment out.
func (p *Parser) Parse(args []string, lookup func(string) (string, bool)) (operands []string, err error) {
	if operands, err = p.Args(args); err != nil {
		return nil, err
	}
	if lookup != nil {
		if err := p.Env(lookup); err != nil {
			return nil, err
		}
	}
	return operands, p.Apply()
}

// Args reads the command line, without the program's name, and returns what is no option. An immediate
// option's error (ErrHelp) and ErrComplete are returned as they are; any other error is an *Error.
func (p *Parser) Args(args []string) (operands []string, err error) {
	if len(args) > 0 && args[0] == Completing {
		return nil, ErrComplete
	}
	return p.scan(args, Origin{Source: FromArgs}, p.c.Order)
}

// Directive reads the words of one #SBATCH line; from is its place in words: "job.sh line 3".
func (p *Parser) Directive(words []string, from string) error {
	o := Origin{FromDirective, from}
	operands, err := p.scan(words, o, Permute)
	if err != nil {
		return err
	}
	if len(operands) > 0 {
		e := p.fail(o, "Invalid directive found in batch script: "+operands[0])
		e.severe = true
		return e
	}
	return nil
}

// Override reads the words of a program of the site that has seen the options; they count more than all others. from
// names it.
func (p *Parser) Override(words []string, from string) error {
	o := Origin{FromFilter, from}
	operands, err := p.scan(words, o, Permute)
	if err == nil && len(operands) > 0 {
		err = p.fail(o, "'"+operands[0]+"' is no option")
	}
	return err
}

// Default gives an option a value from the configuration; name is its long name in full.
func (p *Parser) Default(name, value, from string) error {
	o := Origin{FromConfig, from}
	i, err := p.long(name, name, o)
	if err != nil {
		return err
	}
	return p.add(i, value, o)
}

// Inherit takes over options that another parser of the same command was given, as the weakest ones: those of a
// heterogeneous job's component for the next one. names are their long names.
func (p *Parser) Inherit(from *Parser, names []string) {
	for k := range from.found {
		f := &from.found[k]
		name := from.c.Options[f.option].Name
		i := slices.IndexFunc(p.c.Options, func(o Option) bool { return o.Name == name })
		if i < 0 || !slices.Contains(names, name) || from.overridden(f) || len(p.found) == MaxOccurrences {
			continue
		}
		p.found = append(p.found, occurrence{i, f.value, Origin{FromConfig, "the component before"}})
		p.strongest[i] = max(p.strongest[i], FromConfig)
	}
}

// Env looks for the variables of every option that has some. A flag is set by a variable that is empty,
// "yes", "true", "on" or a number other than 0, as sbatch(1) says; an empty variable gives a value to no
// option that requires one, unless that has EmptyEnv.
func (p *Parser) Env(lookup func(string) (string, bool)) error {
	for i := range p.c.Options {
		o := &p.c.Options[i]
		rest := o.Env
		for rest != "" {
			var name string
			name, rest, _ = strings.Cut(rest, " ")
			if strings.HasPrefix(name, "_") {
				name = p.c.EnvPrefix + name
			}
			value, ok := lookup(name)
			if !ok || name == "" {
				continue
			}
			switch {
			case o.Arg == None && !truth(value), o.Arg == Required && value == "" && !o.EmptyEnv:
				continue
			case o.Arg == None && o.Name != "verbose": // SBATCH_DEBUG=4 is -vvvv
				value = ""
			}
			if err := p.add(i, value, Origin{FromEnv, name}); err != nil {
				return err
			}
			break
		}
	}
	return nil
}

// Truth says whether an environment variable has a value that switches a flag on.
func Truth(value string) bool { return value != "" && truth(value) }

// truth says whether an environment variable of this value switches a flag on.
func truth(v string) bool {
	switch strings.ToLower(v) {
	case "", "yes", "true", "on":
		return true
	}
	digits := strings.TrimLeft(strings.TrimPrefix(v, "-"), "0")
	return digits != "" && strings.Trim(digits, "0123456789") == ""
}

// scan reads args as getopt_long does.
func (p *Parser) scan(args []string, from Origin, order Order) (operands []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			return append(operands, args...), nil
		case len(arg) < 2 || arg[0] != '-':
			operands = append(operands, arg)
			if order == StopAtOperand {
				return append(operands, args...), nil
			}
		case arg[1] == '-':
			args, err = p.scanLong(arg, args, from)
		default:
			args, err = p.scanShort(arg, args, from)
		}
		if err != nil {
			return nil, err
		}
	}
	return operands, nil
}

// scanLong reads --name, --name=value or --name value; rest is what follows on the line.
func (p *Parser) scanLong(arg string, rest []string, from Origin) ([]string, error) {
	name, value, attached := strings.Cut(arg[2:], "=")
	i, err := p.long(name, arg[2:], from)
	if err != nil {
		return nil, err
	}
	o := &p.c.Options[i]
	switch {
	case o.Refused != "":
		// Complain about the option and not about its value.
	case o.Arg == None && attached:
		return nil, p.usage(from, "option '"+o.display()+"' doesn't allow an argument")
	case o.Arg == Required && !attached && len(rest) == 0:
		return nil, p.usage(from, "option '"+o.display()+"' requires an argument")
	case o.Arg == Required && !attached:
		value, rest = rest[0], rest[1:]
	}
	return rest, p.add(i, value, from)
}

// scanShort reads -x, -xVALUE, -x VALUE or a cluster -abxVALUE.
func (p *Parser) scanShort(arg string, rest []string, from Origin) ([]string, error) {
	cluster := arg[1:]
	for cluster != "" {
		letter, size := utf8.DecodeRuneInString(cluster)
		spelt := cluster[:size]
		cluster = cluster[size:]
		i := p.short(letter)
		if i < 0 {
			return nil, p.unknownShort(spelt, arg, from)
		}
		o := &p.c.Options[i]
		value := ""
		if o.Arg != None {
			value, cluster = cluster, ""
		}
		if o.Arg == Required && value == "" && o.Refused == "" {
			if len(rest) == 0 {
				return nil, p.usage(from, "option requires an argument -- '"+spelt+"'")
			}
			value, rest = rest[0], rest[1:]
		}
		if err := p.add(i, value, from); err != nil {
			return nil, err
		}
	}
	return rest, nil
}

// add notes one occurrence, or refuses it.
func (p *Parser) add(i int, value string, from Origin) error {
	o := &p.c.Options[i]
	switch {
	case o.Refused != "":
		e := p.fail(from, o.display()+" is not supported by gbatch yet: "+o.Refused)
		e.severe, e.Option = true, o.Name
		return e
	case (o.Immediate || o.ArgsOnly) && from.Source != FromArgs:
		e := p.fail(from, o.display()+" can only be given on the command line")
		e.severe, e.Option = true, o.Name
		return e
	case len(p.found) == MaxOccurrences:
		e := p.fail(from, "more than 10000 options given")
		e.severe = true
		return e
	case o.Immediate:
		return o.Set(value)
	}
	p.found = append(p.found, occurrence{i, value, from})
	p.strongest[i] = max(p.strongest[i], from.Source)
	return nil
}

// short returns the option with this letter, or -1.
func (p *Parser) short(letter rune) int {
	if letter == utf8.RuneError {
		return -1
	}
	for i := range p.c.Options {
		if p.c.Options[i].Short == letter {
			return i
		}
	}
	return -1
}

// long returns the option that name means: the one of that name, or the only one it is a prefix of. arg
// is the whole word without its dashes, for the complaint.
func (p *Parser) long(name, arg string, from Origin) (int, error) {
	found, several := -1, false
	for i := range p.c.Options {
		o := &p.c.Options[i]
		if o.Name == name && name != "" {
			return i, nil
		}
		match := name != "" && strings.HasPrefix(o.Name, name)
		for _, a := range o.Aliases {
			if a == name {
				return i, nil
			}
			match = match || name != "" && strings.HasPrefix(a, name)
		}
		if match {
			several = several || found >= 0
			found = i
		}
	}
	switch {
	case several:
		return -1, p.ambiguous(name, arg, from)
	case found < 0:
		return -1, p.unknownLong(name, arg, from)
	}
	return found, nil
}
