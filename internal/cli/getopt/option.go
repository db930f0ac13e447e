package getopt

import (
	"errors"
	"fmt"
	"strings"
)

// Arg says whether an option takes a value.
type Arg uint8

const (
	None     Arg = iota // --hold
	Required            // --time=5, --time 5, -t5, -t 5
	Optional            // --nice, --nice=5; never a word of its own
)

// Order says how a word that is no option is treated.
type Order uint8

const (
	Permute       Order = iota // options may follow operands: squeue, scancel, sacct, scontrol, sacctmgr
	StopAtOperand              // the first operand ends the options: sbatch, srun, salloc
)

// Option is one row of a command's table. One without any name is a variable that is no option; it is hidden.
type Option struct {
	Name    string   // long name without dashes; "" where there is only a short one
	Aliases []string // further long names of the same option
	Short   rune     // 0: none
	Arg     Arg

	// Group, Metavar and Help are for people: the heading it stands under, what its value is called
	// and what it does, in a line or two.
	Group   string
	Metavar string
	Help    string

	// Env names the variables that set it, best first, with blanks between. One that begins with an
	// underscore gets Config.EnvPrefix before it: "_CLUSTERS SLURM_CLUSTERS".
	Env string
	// EmptyEnv: a variable that is empty gives the empty value too, also where one is required.
	EmptyEnv bool

	// Slot is shared by options that override each other: --requeue and --no-requeue, --mem and
	// --mem-per-cpu. "" means the option stands alone.
	Slot string

	// Clash, where not "", is the sentence about two different options of a slot that one source gives, of which neither
	// overrides the other; ClashEnv is that about variables.
	Clash, ClashEnv string

	// Rival reports whether another option with its value excludes this one: one of the command line or the script counts
	// more than a variable. Of two of these this one is left out, and Yielded has YieldText. An option that is left out is
	// as if it had not been given.
	Rival     func(name, value string) bool
	YieldText string

	// Refused, where not "", is what to use instead: the option is known to Slurm and not here yet, and
	// giving it is an error with this sentence in it.
	Refused string

	// Note, if not "", says why the option is accepted but has no effect. Parser.Notes returns it.
	Note string
	// NoteAside options have an effect elsewhere, which the help describes: it leaves out the note.
	NoteAside bool

	// Immediate options (--help, --version) call Set while Args reads them, before anything else is
	// judged, and can only be given on the command line. So can ArgsOnly options, which wait for Apply.
	Immediate bool
	ArgsOnly  bool

	// Hidden options work and are left out of the help.
	Hidden bool

	// Set takes one occurrence: the value, or "" where there is none. Its error is shown after
	// "Invalid --time specification"; a *NumberError and a *TextError have their own words.
	// nil is for options that only Given asks for, and for refused ones.
	Set func(value string) error
}

// Config describes a command to its Parser.
type Config struct {
	Program   string // the name it was called by, at the head of every message
	Options   []Option
	Order     Order
	EnvPrefix string // "SBATCH"
	Failure   string // "Batch job submission failed: ", before the reason why a job is not taken
	Operands  string // what follows the options, for the usage line: "[script [args...]]"
	About     string // a paragraph above the options in the help
	Epilogue  string // paragraphs below them, a line each; one that begins with spaces is indented
	Syntax    string // what the help's first line has in place of "[OPTIONS]" and Operands
	Brief     string // what --usage prints in place of the options and Operands
	Heading   string // above all options; "": those without a group are "Options"
	// UsageIsHelp: --usage prints the help.
	UsageIsHelp bool
	Colons      bool // an option with a value is shown as "--jobs: ids", as in sacct's help

	// For completion: the values of an option that only this command knows, and of what is no option. Operands before
	// it and what is typed of it say which.
	Values        func(option string) (Values, bool)
	OperandValues func(before []string, typed string) Values
}

// names returns the long names of o, the main one first.
func (o *Option) names(yield func(string) bool) {
	if o.Name != "" && !yield(o.Name) {
		return
	}
	for _, a := range o.Aliases {
		if !yield(a) {
			return
		}
	}
}

// isVariable says that o is a variable, and no option.
func (o *Option) isVariable() bool { return o.Name == "" && o.Short == 0 }

// display is how messages name o: --time, or -x where it has no long name.
func (o *Option) display() string {
	switch {
	case o.Name != "":
		return "--" + o.Name
	case o.isVariable():
		return o.Env
	}
	return "-" + string(o.Short)
}

// Check finds mistakes in a table: for the tests of those who write one.
func Check(options []Option) error {
	var problems []error
	long, short := map[string]bool{}, map[rune]bool{}
	for i := range options {
		o := &options[i]
		complain := func(what string) { problems = append(problems, fmt.Errorf("option %d (%s): %s", i, o.display(), what)) }
		if o.isVariable() && (o.Env == "" || !o.Hidden || o.Arg != Required) {
			complain("has no name, and is no hidden variable with a value")
		}
		for n := range o.names {
			if long[n] {
				complain("--" + n + " is declared twice")
			}
			if n == "" || strings.HasPrefix(n, "-") || strings.ContainsAny(n, "= ") {
				complain(fmt.Sprintf("%q is no long name", n))
			}
			long[n] = true
		}
		if o.Short != 0 {
			if short[o.Short] {
				complain("-" + string(o.Short) + " is declared twice")
			}
			if o.Short == '-' || o.Short <= ' ' {
				complain(fmt.Sprintf("%q is no short name", o.Short))
			}
			short[o.Short] = true
		}
		if o.Refused == "" && o.Note == "" && o.Help == "" && !o.Hidden {
			complain("has no help")
		}
		if o.Refused != "" && o.Set != nil {
			complain("is refused and has a Set")
		}
		if o.Immediate && (o.Set == nil || o.Env != "") {
			complain("is immediate: it needs a Set and no Env")
		}
		if o.ArgsOnly && o.Env != "" {
			complain("is for the command line only and has an Env")
		}
	}
	return errors.Join(problems...)
}
