package ask

import (
	"math"
	"strconv"
	"strings"

	"gbatch/internal/model"
)

// maxGresWords bounds the words of one list of generic resources.
const maxGresWords = 64

// ParseGres reads generic resources: name[:type][:count],... or, with a name given, [type:]count,... as --gpus has it.
// Each may begin with gres/ or gres:, as gcontrol show job and accounting write them; gres/gpu=2 is gpu:2. Counts may
// end in K, M or G; a part of a GPU such as 0.5 becomes shares. "" and none ask for nothing.
func ParseGres(name, v string, per model.GresPer) ([]model.GresReq, error) {
	if v == "none" || v == "NONE" {
		return nil, nil
	}
	var out []model.GresReq
	for _, word := range splitList(v, ",") {
		if len(out) == maxGresWords {
			return nil, refuse(Gres, "'%s': more than %d resources in one list", word, maxGresWords)
		}
		r, err := parseGresWord(name, word)
		if err != nil {
			return nil, err
		}
		if r.Per = per; r.Count > 0 {
			out = append(out, r)
		}
	}
	return out, nil
}

func parseGresWord(name, word string) (model.GresReq, error) {
	r := model.GresReq{Name: name, Count: 1}
	bad := func() (model.GresReq, error) {
		if name != "" {
			return r, refuse(Gres, "'%s'; write a number or TYPE:NUMBER, such as 2 or a100:2", word)
		}
		return r, refuse(Gres, "'%s'; write NAME:NUMBER or NAME:TYPE:NUMBER, such as gpu:2 or gpu:a100:2", word)
	}
	rest := strings.TrimPrefix(word, "gres:")
	if tres, is := strings.CutPrefix(word, "gres/"); is {
		rest = strings.Replace(tres, "=", ":", 1)
	}
	parts := strings.Split(rest, ":")
	switch {
	case name == "":
		r.Name, parts = parts[0], parts[1:]
	case parts[0] == name && len(parts) > 1:
		parts = parts[1:] // --gpus=gpu:2
	}
	if n := len(parts); n > 0 {
		last := parts[n-1]
		part, isPart, err := parsePart(last)
		if err != nil && r.Name == model.GPUName {
			return r, err
		}
		count, cerr := parseUnitsOf(r.Name, last)
		from, to, isRange := strings.Cut(last, "-")
		switch {
		case isPart && r.Name == model.GPUName:
			r.Name, r.Milli, parts = model.ShardName, part, parts[:n-1]
		case cerr == nil:
			r.Count, parts = count, parts[:n-1]
		case isRange && allDigits(from) && allDigits(to):
			return r, refuse(Gres, "'%s'; a range (%s) is not possible, one number is: ask for the least that does, %s; "+
				"a range of nodes is, as in -N%s with --gpus-per-node", word, last, from, last)
		case n > 1:
			return bad()
		}
	}
	switch len(parts) {
	case 0:
	case 1:
		r.Type = parts[0]
	default:
		return bad()
	}
	if r.Name == "" || strings.ContainsAny(r.Name+r.Type, "=() ") || strings.HasSuffix(word, ":") {
		return bad()
	}
	return r, nil
}

func allDigits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// ParseUnits reads a count of a resource, with K, M or G behind it (powers of 1024).
func ParseUnits(t string) (int32, error) { return parseUnitsOf("", t) }

// parseUnitsOf reads a count of a named resource; of memory of GPUs 16G are the units that hold as much.
func parseUnitsOf(name, t string) (int32, error) {
	n, err := parseUnits(t, math.MaxInt64)
	if err != nil {
		return 0, err
	}
	if n = model.ShareUnits(name, n, true); n > math.MaxInt32 {
		return 0, errOutOfRange
	}
	return int32(n), nil
}

// parsePart reads a number below 1 such as 0.5 as thousandths. ok is false for whole numbers and for what is no number;
// err tells of numbers that are no part of one GPU.
func parsePart(word string) (milli int32, ok bool, err error) {
	if !strings.Contains(word, ".") {
		return 0, false, nil
	}
	f, ferr := strconv.ParseFloat(word, 64)
	if ferr != nil {
		return 0, false, nil // a type, such as 1g.10gb
	}
	milli = int32(min(max(f, 0), 1)*1000 + 0.5)
	if f >= 1 || f < 0 || milli < 1 || milli > 999 {
		return 0, true, refuse(Gres, "'%s' GPUs: a part is of one GPU, more than 0 and less than 1; write 0.5, or a whole "+
			"number of GPUs", word)
	}
	return milli, true, nil
}

// PartText shows thousandths: 0.5.
func PartText(milli int32) string { return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64) }

// GresText shows a request as --gres has it: gpu:a100:2, or 0.5 of a GPU.
func GresText(g *model.GresReq) string {
	if g.Milli > 0 {
		return PartText(g.Milli) + " of a GPU"
	}
	return model.TypedName(g.Name, g.Type) + ":" + strconv.Itoa(int(g.Count))
}

// splitList gives the words of a list, blanks around them left out, between any of the separators.
func splitList(text, separators string) []string {
	var out []string
	for _, w := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(separators, r) }) {
		if w = strings.TrimSpace(w); w != "" {
			out = append(out, w)
		}
	}
	return out
}
