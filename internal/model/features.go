package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Features is a parsed --constraint. It follows Slurm's notation (https://slurm.schedmd.com/sbatch.html):
//
//	a  a&b  a|b  (a|b)&c  !a      what each node must have; & and | are taken from left to right, neither is stronger
//	[r1|r2|r3]                    all nodes of the job the same one of these
//	a*2&(b|c)*4  [a*2&b*4]        so many nodes of each; the job may have others beside them
//
// The three are joined with &. A comma is read as &, as Slurm does. Negation is gbatch's own.
type Features struct {
	Each   *Feature       // every node must meet it; nil: any node does
	Same   []*Feature     // all nodes meet the same one of these; empty: not asked for
	Counts []FeatureCount // numbers of the job's nodes that meet a feature
}

// FeatureCount asks for N nodes that meet a condition.
type FeatureCount struct {
	Feature
	N int
}

// Feature is a condition on one node: a name, or several conditions joined.
type Feature struct {
	Name string // of a leaf
	Op   byte   // '&', '|' or '!'; 0: a leaf
	Of   []*Feature
}

// Met reports whether a node with these features meets the condition; nil is met by all.
func (f *Feature) Met(have []string) bool {
	switch {
	case f == nil:
		return true
	case f.Op == 0:
		return slices.Contains(have, f.Name)
	case f.Op == '!':
		return !f.Of[0].Met(have)
	case f.Op == '|':
		return slices.ContainsFunc(f.Of, func(g *Feature) bool { return g.Met(have) })
	}
	return !slices.ContainsFunc(f.Of, func(g *Feature) bool { return !g.Met(have) })
}

// String gives the condition in its notation; equal conditions give equal texts. The first operand has no parentheses,
// which the order from left to right makes needless: a long a|b&c|d would have more of them than may be read again.
func (f *Feature) String() string {
	switch {
	case f == nil:
		return ""
	case f.Op == 0:
		return f.Name
	case f.Op == '!':
		return "!" + f.Of[0].inner()
	}
	parts := make([]string, len(f.Of))
	parts[0] = f.Of[0].String()
	for i, g := range f.Of[1:] {
		parts[i+1] = g.inner()
	}
	return strings.Join(parts, string(f.Op))
}

func (f *Feature) inner() string {
	if f.Op == '&' || f.Op == '|' {
		return "(" + f.String() + ")"
	}
	return f.String()
}

// String gives the expression in a single spelling.
func (f *Features) String() string {
	if f == nil {
		return ""
	}
	var parts []string
	if f.Each != nil {
		if f.Each.Op == '|' && len(f.Same)+len(f.Counts) > 0 {
			parts = append(parts, f.Each.inner())
		} else {
			parts = append(parts, f.Each.String())
		}
	}
	if len(f.Same) > 0 {
		var alts []string
		for _, a := range f.Same {
			alts = append(alts, a.inner())
		}
		parts = append(parts, "["+strings.Join(alts, "|")+"]")
	}
	for i := range f.Counts {
		parts = append(parts, f.Counts[i].inner()+"*"+strconv.Itoa(f.Counts[i].N))
	}
	return strings.Join(parts, "&")
}

// And joins two conditions; each may be nil.
func (f *Feature) And(g *Feature) *Feature {
	switch {
	case f == nil:
		return g
	case g == nil:
		return f
	}
	return &Feature{Op: '&', Of: slices.Concat(f.conjuncts(), g.conjuncts())}
}

// conjuncts gives what has to be met, all of it.
func (f *Feature) conjuncts() []*Feature {
	if f.Op == '&' {
		return f.Of
	}
	return []*Feature{f}
}

// Bounds of a feature expression, so that none can slow a controller down.
const (
	MaxFeatureNames = 64
	MaxFeatureDepth = 16
	MaxFeatureSame  = 64 // alternatives of all brackets together
	MaxFeatureCount = 1 << 20
)

// FeatureError says what is wrong with a feature expression, and where (Pos counts bytes from 1).
type FeatureError struct {
	Text string
	Pos  int
	Why  string
}

func (e *FeatureError) Error() string {
	return fmt.Sprintf("'%s', position %d: %s", e.Text, e.Pos, e.Why)
}

// FeatureText is how a feature expression is kept: with & for every comma, which many write in its place.
func FeatureText(text string) string { return strings.ReplaceAll(text, ",", "&") }

// ParseFeatures reads a feature expression; "" gives nil. Errors are *FeatureError.
func ParseFeatures(text string) (*Features, error) {
	if strings.Trim(text, " \t") == "" {
		return nil, nil //nolint:nilnil // no expression, no features
	}
	p := &featureParser{text: FeatureText(text)}
	for i := range len(text) {
		if c := text[i]; c < ' ' && c != '\t' || c == 0x7f {
			return nil, p.fail(i, "a control character is part of no feature")
		}
	}
	f, err := p.all()
	if err != nil {
		return nil, err
	}
	return f, nil
}

type featureParser struct {
	text  string
	at    int
	names int
}

func (p *featureParser) fail(at int, format string, a ...any) error {
	return &FeatureError{Text: p.text, Pos: at + 1, Why: fmt.Sprintf(format, a...)}
}

// peek gives the next character that is not blank; 0 at the end.
func (p *featureParser) peek() byte {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.at++
	}
	if p.at == len(p.text) {
		return 0
	}
	return p.text[p.at]
}

// featureWord is one operand of the expression's top level.
type featureWord struct {
	at     int
	cond   *Feature
	same   []*Feature
	counts []FeatureCount
}

func (w *featureWord) plain() bool { return w.same == nil && w.counts == nil }

// all reads the top level.
func (p *featureParser) all() (*Features, error) {
	out := &Features{}
	for op := byte('&'); ; {
		w, err := p.word()
		if err != nil {
			return nil, err
		}
		alone := len(out.Same) == 0 && len(out.Counts) == 0
		switch {
		case op == '|' && !(w.plain() && alone):
			return nil, p.fail(w.at, "brackets and counts are joined with &, not with |")
		case op == '|':
			out.Each = joined('|', out.Each, w.cond)
		case w.same != nil:
			if len(out.Same) > 0 {
				if out.Same, err = p.product(w.at, out.Same, w.same); err != nil {
					return nil, err
				}
			} else {
				out.Same = w.same
			}
		case w.counts != nil:
			out.Counts = append(out.Counts, w.counts...)
		case out.Each == nil:
			out.Each = w.cond
		default:
			out.Each = joined('&', out.Each, w.cond)
		}
		switch c := p.peek(); c {
		case 0:
			return out, nil
		case '&', '|':
			op = c
			p.at++
		case ')', ']':
			return nil, p.fail(p.at, "%q closes nothing", c)
		default:
			return nil, p.fail(p.at, "& or | is missing before %q", c)
		}
	}
}

// joined adds an operand to the condition on its left.
func joined(op byte, left, right *Feature) *Feature {
	if left.Op == op {
		return &Feature{Op: op, Of: append(slices.Clone(left.Of), right)}
	}
	return &Feature{Op: op, Of: []*Feature{left, right}}
}

// product gives all combinations of the alternatives of two brackets.
func (p *featureParser) product(at int, a, b []*Feature) ([]*Feature, error) {
	if len(a)*len(b) > MaxFeatureSame {
		return nil, p.fail(at, "the brackets have more than %d alternatives together", MaxFeatureSame)
	}
	var out []*Feature
	for _, x := range a {
		for _, y := range b {
			out = append(out, x.And(y))
		}
	}
	return out, nil
}

// word reads a bracket, or an operand with a count or without.
func (p *featureParser) word() (featureWord, error) {
	c := p.peek()
	w := featureWord{at: p.at}
	if c == '[' {
		p.at++
		return w, p.bracket(&w)
	}
	f, err := p.operand(0)
	if err != nil {
		return w, err
	}
	n, has, err := p.count()
	if err != nil {
		return w, err
	}
	if has {
		w.counts = []FeatureCount{{*f, n}}
	} else {
		w.cond = f
	}
	return w, nil
}

// bracket reads alternatives or counts between [ and ].
func (p *featureParser) bracket(w *featureWord) error {
	var left *Feature // the alternative that is being read
	for op := byte(0); ; {
		c, at := p.peek(), p.at
		if c == '[' {
			return p.fail(at, "brackets don't go into brackets; use ( and )")
		}
		f, err := p.operand(0)
		if err != nil {
			return err
		}
		n, has, err := p.count()
		if err != nil {
			return err
		}
		switch {
		case has && (op == '|' || left != nil):
			return p.fail(at, "counts are joined with & and stand alone in their brackets, as in [a*2&b*1]")
		case has:
			w.counts = append(w.counts, FeatureCount{*f, n})
		case w.counts != nil:
			return p.fail(at, "this one needs a count too, as in [a*2&b*1]")
		case op == '&':
			left = joined('&', left, f)
		default:
			if left != nil {
				w.same = append(w.same, left)
			}
			left = f
		}
		switch c = p.peek(); c {
		case ']':
			p.at++
			if left != nil {
				w.same = append(w.same, left)
			}
			if len(w.same) > MaxFeatureSame {
				return p.fail(w.at, "the brackets have more than %d alternatives", MaxFeatureSame)
			}
			return nil
		case '&', '|':
			op = c
			p.at++
		case 0:
			return p.fail(w.at, "this [ is never closed")
		default:
			return p.fail(p.at, "&, | or ] is missing before %q", c)
		}
	}
}

// count reads *N.
func (p *featureParser) count() (int, bool, error) {
	if p.peek() != '*' {
		return 0, false, nil
	}
	at := p.at
	p.at++
	p.peek()
	from := p.at
	for p.at < len(p.text) && p.text[p.at] >= '0' && p.text[p.at] <= '9' {
		p.at++
	}
	n, err := strconv.Atoi(p.text[from:p.at])
	if err != nil || n < 1 || n > MaxFeatureCount {
		return 0, false, p.fail(at, "after * comes a number of nodes from 1 to %d", MaxFeatureCount)
	}
	return n, true, nil
}

// operand reads a name, a negation or an expression in parentheses.
func (p *featureParser) operand(depth int) (*Feature, error) {
	c := p.peek()
	at := p.at
	if depth > MaxFeatureDepth {
		return nil, p.fail(at, "more than %d levels of parentheses and negations", MaxFeatureDepth)
	}
	switch c {
	case 0:
		return nil, p.fail(at, "a feature is missing at the end")
	case '!':
		p.at++
		f, err := p.operand(depth + 1)
		if err != nil {
			return nil, err
		}
		return &Feature{Op: '!', Of: []*Feature{f}}, nil
	case '(':
		p.at++
		return p.parens(at, depth)
	case '[':
		return nil, p.fail(at, "brackets don't go into parentheses")
	case '&', '|', ')', ']', '*', ',':
		return nil, p.fail(at, "a feature is missing before %q", c)
	}
	from := p.at
	for p.at < len(p.text) && !strings.ContainsRune("&|()[]*!, \t", rune(p.text[p.at])) {
		p.at++
	}
	if p.names++; p.names > MaxFeatureNames {
		return nil, p.fail(at, "more than %d features", MaxFeatureNames)
	}
	return &Feature{Name: p.text[from:p.at]}, nil
}

// parens reads up to the closing parenthesis.
func (p *featureParser) parens(open, depth int) (*Feature, error) {
	var left *Feature
	for op := byte(0); ; {
		f, err := p.operand(depth + 1)
		if err != nil {
			return nil, err
		}
		if left == nil {
			left = f
		} else {
			left = joined(op, left, f)
		}
		switch c := p.peek(); c {
		case ')':
			p.at++
			return left, nil
		case '&', '|':
			op = c
			p.at++
		case '*':
			return nil, p.fail(p.at, "a count stands behind the parenthesis, as in (a&b)*2")
		case 0:
			return nil, p.fail(open, "this ( is never closed")
		default:
			return nil, p.fail(p.at, "&, | or ) is missing before %q", c)
		}
	}
}

// modelPrefix marks a model in --prefer.
const modelPrefix = "model:"

// MaxModelName bounds the name of a model, bytes.
const MaxModelName = 128

// SplitPrefer divides --prefer into features and the model that the job's GPUs had better have loaded, as in
// a100&model:llama; each may be "".
func SplitPrefer(text string) (features, name string, err error) {
	if !strings.Contains(text, modelPrefix) {
		return text, "", nil
	}
	var rest []string
	text = FeatureText(text)
	for part := range strings.SplitSeq(text, "&") {
		v, ok := strings.CutPrefix(strings.Trim(part, " \t"), modelPrefix)
		switch {
		case !ok:
			rest = append(rest, part)
		case name != "":
			return "", "", fmt.Errorf("'%s' names two models: a job prefers one", text)
		case !plainModel(v):
			return "", "", fmt.Errorf("'%s' is no name of a model: write letters, digits and . _ - / : + @ behind %s, at most "+
				"%d, and join it to features with &", text, modelPrefix, MaxModelName)
		default:
			name = v
		}
	}
	features = strings.Join(rest, "&")
	if strings.Contains(features, modelPrefix) {
		return "", "", fmt.Errorf("'%s': a model stands alone, or is joined to features with &: model:NAME&FEATURE", text)
	}
	return features, name, nil
}

func plainModel(v string) bool {
	return v != "" && len(v) <= MaxModelName && !strings.ContainsFunc(v, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-/:+@", r)
	})
}

// Model gives the model that a job's GPUs had better have loaded; "": none.
func (s *Spec) Model() string {
	if s.More == nil {
		return ""
	}
	_, name, err := SplitPrefer(s.More.Prefer)
	if err != nil {
		return "" // submission refuses it
	}
	return name
}
