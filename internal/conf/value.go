package conf

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/suggest"
	"gbatch/internal/walltime"
)

// The functions here read one value. If it can't be read, they return the reason, as the end of a sentence that begins
// with key=value, and a suggestion.

// fault says why a value is refused; the zero fault is none.
type fault struct {
	why  string
	want string // what to write behind "write key="; "": the default
}

func (f fault) bad() bool { return f.why != "" }

func isUnlimited(v string) bool {
	return strings.EqualFold(v, "UNLIMITED") || strings.EqualFold(v, "INFINITE") || v == "-1"
}

// readInt reads a whole number within bounds.
func readInt(v string, least, most int64) (int64, fault) {
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fault{why: fmt.Sprintf("%s is not a whole number from %d to %d", shown(v), least, most)}
	}
	return n, fault{}
}

// readSeconds reads a span that Slurm takes as plain seconds.
func readSeconds(v string, least, most int64) (int64, fault) {
	n, f := readInt(v, least, most)
	if f.bad() {
		f.why = fmt.Sprintf("%s is not a number of seconds from %d to %d", shown(v), least, most)
		if d, err := walltime.ParseDuration(v); err == nil && d >= least && d <= most {
			f.want = strconv.FormatInt(d, 10)
		}
	}
	return n, f
}

// readDuration reads a span that Slurm takes as a time limit ("7-0", "5").
func readDuration(v string) (int64, fault) {
	n, err := walltime.ParseDuration(v)
	if err != nil {
		return 0, fault{shown(v) + " is not a length of time", "minutes, hours:minutes:seconds or days-hours, such as 7-0"}
	}
	return n, fault{}
}

// readLimit reads a time limit; no limit is model.Unlimited.
func readLimit(v string) (int64, fault) {
	n, unlimited, err := walltime.ParseLimit(v)
	switch {
	case err != nil:
		return 0, fault{shown(v) + " is not a time limit",
			"minutes, hours:minutes:seconds, days-hours:minutes:seconds or UNLIMITED"}
	case unlimited || n > model.Unlimited:
		return model.Unlimited, fault{}
	}
	return n, fault{}
}

// readCountLimit reads a count that may be UNLIMITED, which is 0.
func readCountLimit(v string, most int64) (int64, fault) {
	if isUnlimited(v) {
		return 0, fault{}
	}
	n, err := walltime.ParseCount(v)
	if err != nil || n > most {
		return 0, fault{fmt.Sprintf("%s is not a count up to %d", shown(v), most), "a number or UNLIMITED"}
	}
	return n, fault{}
}

// readMem reads a memory size in MiB; UNLIMITED is 0, which is "not set".
func readMem(v string) (int64, fault) {
	if isUnlimited(v) {
		return 0, fault{}
	}
	n, err := walltime.ParseMemMiB(v)
	if err != nil {
		return 0, fault{shown(v) + " is not a memory size", "MiB such as 4000, or 4G"}
	}
	return n, fault{}
}

func readBool(v string) (bool, fault) {
	switch strings.ToLower(v) {
	case "yes", "y", "true", "t", "on", "up", "1":
		return true, fault{}
	case "no", "n", "false", "f", "off", "down", "0":
		return false, fault{}
	}
	return false, fault{shown(v) + " is neither YES nor NO", "YES or NO"}
}

// sameWord reports whether v means the word w: in any case, and for the name of
// a plugin without its kind, as newer Slurms allow (cgroup for task/cgroup).
func sameWord(v, w string) bool {
	if strings.EqualFold(v, w) {
		return true
	}
	_, short, isPlugin := strings.Cut(w, "/")
	return isPlugin && strings.EqualFold(v, short)
}

// readWord reads one of a few words, in any case, and returns it as listed.
func readWord(v string, words []string) (string, fault) {
	for _, w := range words {
		if sameWord(v, w) {
			return w, fault{}
		}
	}
	f := fault{shown(v) + " is not a known value", strings.Join(words, ", ")}
	if len(words) > 1 {
		f.want = strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
	}
	if near := nearest(v, words); near != "" {
		f.want = near
	}
	return "", f
}

// readWords reads a comma-separated list of words out of a few.
func readWords(v string, words []string) ([]string, fault) {
	var out []string
	for _, item := range splitList(v) {
		w, f := readWord(item, words)
		if f.bad() {
			return nil, f
		}
		out = append(out, w)
	}
	return out, fault{}
}

// splitList cuts a comma-separated list; blanks and empty elements are dropped.
func splitList(v string) []string {
	var out []string
	for item := range strings.SplitSeq(v, ",") {
		if item = strings.TrimSpace(item); item != "" {
			out = append(out, item)
		}
	}
	return out
}

// readPercent reads a percentage such as 101.5.
func readPercent(v string, most float64) (float64, fault) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(v, "%"), 64)
	if err != nil || math.IsNaN(n) || n < 0 || n > most {
		return 0, fault{fmt.Sprintf("%s is not a percentage from 0 to %g", shown(v), most),
			"a number such as " + examplePercent(most)}
	}
	return n, fault{}
}

// examplePercent names percentages that are not above most.
func examplePercent(most float64) string {
	if most < 95.5 {
		return strconv.FormatFloat(most/2, 'g', 4, 64)
	}
	return fmt.Sprintf("%g or 95.5", min(most, 100))
}

// readQuantity reads a count with K, M, G, T or P (powers of 1024), as Count
// and Gres take it.
func readQuantity(v string) (int64, fault) {
	digits, factor := v, int64(1)
	if n := len(v); n > 0 {
		if i := strings.IndexByte("KMGTP", v[n-1]&^0x20); i >= 0 && v[n-1] > '9' {
			digits, factor = v[:n-1], 1<<(10*(i+1))
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/factor {
		return 0, fault{shown(v) + " is not a count", "a whole number, with K, M or G behind it if you like"}
	}
	return n * factor, fault{}
}

// micros is the precision of weights: whole numbers, because replicated values must not be floats.
const micros = 1_000_000

// readMicros reads a decimal number as millionths.
func readMicros(v string) (int64, bool) {
	whole, frac, _ := strings.Cut(v, ".")
	negative := strings.HasPrefix(whole, "-")
	whole = strings.TrimPrefix(whole, "-")
	if whole == "" && frac == "" || len(whole) > 12 || len(frac) > 6 || strings.Trim(whole+frac, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(whole+frac+"000000"[len(frac):], 10, 64)
	if err != nil {
		return 0, false
	}
	if negative {
		n = -n
	}
	return n, true
}

func showBool(b bool) string {
	if b {
		return "Yes"
	}
	return "No"
}

// orNull is how scontrol shows what isn't set.
func orNull(s string) string {
	if s == "" {
		return "(null)"
	}
	return s
}

// nearest returns the word that v was probably meant to be, or "".
func nearest(v string, words []string) string {
	near := suggest.Nearest(v, words)
	if len(near) == 0 {
		return ""
	}
	return near[0]
}

func byName(a, b string) int {
	return cmp.Or(strings.Compare(strings.ToLower(a), strings.ToLower(b)), strings.Compare(a, b))
}

func sortKVs(kvs []model.KV) {
	slices.SortFunc(kvs, func(a, b model.KV) int { return byName(a.Key, b.Key) })
}

// readOverTime reads OverTimeLimit: minutes, or UNLIMITED.
func readOverTime(v string) (int64, fault) {
	if isUnlimited(v) {
		return model.Unlimited, fault{}
	}
	n, f := readInt(v, 0, 65533)
	if f.bad() {
		return 0, fault{shown(v) + " is not a number of minutes up to 65533", "0, or UNLIMITED"}
	}
	return n * 60, fault{}
}

func showOverTime(s int64) string {
	if s == model.Unlimited {
		return "UNLIMITED"
	}
	return strconv.FormatInt(s/60, 10)
}

func readLicenses(v string) ([]License, fault) {
	var out []License
	for _, item := range splitList(v) {
		name, count, has := strings.Cut(item, "*")
		if !has {
			name, count, has = strings.Cut(item, ":")
		}
		lic := License{Name: strings.TrimSpace(name), Count: 1}
		if has {
			n, err := walltime.ParseCount(strings.TrimSpace(count))
			if err != nil {
				return nil, fault{shown(item) + " is not name*count", "foo*4,bar"}
			}
			lic.Count = n
		}
		if lic.Name == "" {
			return nil, fault{shown(item) + " has no name", "foo*4,bar"}
		}
		for _, l := range out {
			if l.Name == lic.Name {
				return nil, fault{lic.Name + " stands twice", "each license once"}
			}
		}
		out = append(out, lic)
		if len(out) > model.MaxLicenses {
			return nil, fault{"more than " + strconv.Itoa(model.MaxLicenses) + " licenses", "fewer of them"}
		}
	}
	return out, fault{}
}

func showLicenses(list []License) string {
	var out []string
	for _, l := range list {
		if l.Count == 1 {
			out = append(out, l.Name)
		} else {
			out = append(out, l.Name+"*"+strconv.FormatInt(l.Count, 10))
		}
	}
	return strings.Join(out, ",")
}

// readJobDefaults reads "DefCpuPerGPU=2,DefMemPerGPU=100".
func readJobDefaults(d *JobDefaults, v string) fault {
	for _, item := range splitList(v) {
		key, value, _ := strings.Cut(item, "=")
		var f fault
		switch {
		case strings.EqualFold(key, "DefCpuPerGPU"):
			d.DefCPUPerGPU, f = readInt(value, 0, 65533)
		case strings.EqualFold(key, "DefMemPerGPU"):
			d.DefMemPerGPUMiB, f = readMem(value)
		default:
			f = fault{why: shown(item) + " is not understood"}
		}
		if f.bad() {
			return fault{f.why, "DefCpuPerGPU=2,DefMemPerGPU=4096"}
		}
	}
	return fault{}
}

// String gives the defaults as scontrol shows them.
func (d JobDefaults) String() string {
	var out []string
	if d.DefCPUPerGPU > 0 {
		out = append(out, "DefCpuPerGPU="+strconv.FormatInt(d.DefCPUPerGPU, 10))
	}
	if d.DefMemPerGPUMiB > 0 {
		out = append(out, "DefMemPerGPU="+strconv.FormatInt(d.DefMemPerGPUMiB, 10))
	}
	return strings.Join(out, ",")
}
