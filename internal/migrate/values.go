package migrate

import (
	"strconv"
	"strings"
	"time"

	"gbatch/internal/model"
)

// maxSpanS bounds times that are read, seconds: a thousand years.
const maxSpanS = 1000 * 366 * 86400

// moment reads a time as sacct prints it, in the time zone of the one who dumped it, or seconds since 1970. Unknown,
// None and the empty text are 0.
func moment(text string, zone *time.Location) (model.Time, bool) {
	switch text {
	case "", "Unknown", "None", "N/A", "NONE":
		return 0, true
	}
	t, err := time.ParseInLocation("2006-01-02T15:04:05", text, zone)
	if err != nil {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > maxSpanS {
			return 0, false
		}
		return model.Time(n * 1000), true
	}
	if t.Year() < 1970 || t.Unix() < 0 {
		return 0, false
	}
	return model.Time(t.UnixMilli()), true
}

// spanMS reads [days-][hours:]minutes:seconds[.fraction] as milliseconds.
func spanMS(text string) (int64, bool) {
	if text == "" || text == "INVALID" {
		return 0, true
	}
	days, clock, dashed := strings.Cut(text, "-")
	if !dashed {
		days, clock = "0", text
	}
	sum, err := strconv.ParseUint(days, 10, 32)
	if err != nil {
		return 0, false
	}
	clock, fraction, _ := strings.Cut(clock, ".")
	fields := strings.Split(clock, ":")
	if len(fields) > 3 || len(fields) < 2 {
		return 0, false
	}
	if sum *= 24; len(fields) == 2 {
		fields = append([]string{"0"}, fields...)
	}
	for i, f := range fields {
		n, err := strconv.ParseUint(f, 10, 40)
		if err != nil {
			return 0, false
		}
		if i > 0 {
			sum *= 60
		}
		sum += n
	}
	if sum > maxSpanS {
		return 0, false
	}
	ms := int64(sum) * 1000
	if fraction != "" {
		n, err := strconv.ParseUint((fraction + "00")[:3], 10, 16)
		if err != nil {
			return 0, false
		}
		ms += int64(n)
	}
	return ms, true
}

// size reads a number with K, M, G, T or P behind it, each 1024 of the one before, as a count of units of 1<<unit; bare
// is the shift of a number without a letter.
func size(text string, bare, unit int) (int64, bool) {
	if text == "" {
		return 0, true
	}
	shift := bare
	if i := strings.IndexByte("BKMGTP", upper(text[len(text)-1])); i >= 0 {
		shift, text = 10*i, text[:len(text)-1]
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f < 0 || f != f {
		return 0, false
	}
	for ; shift > unit; shift -= 10 {
		f *= 1024
	}
	for ; shift < unit; shift += 10 {
		f /= 1024
	}
	if f > 1<<60 {
		return 0, false
	}
	return int64(f + 0.5), true
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		return c - 32
	}
	return c
}

// tres is a list of resources such as billing=1,cpu=1,gres/gpu:a100=2,mem=8000M,node=1.
type tres struct {
	CPUs, Nodes int32
	MemMiB      int64
	Bill        int64
	Gres        []model.GresCount
	Licenses    []model.LicenseCount
	Given       bool
}

func readTRES(text string) (t tres, ok bool) {
	if text == "" {
		return t, true
	}
	t.Given = true
	plain := map[string]int64{}
	for item := range strings.SplitSeq(text, ",") {
		name, value, found := strings.Cut(item, "=")
		if !found {
			return t, false
		}
		if name == "mem" {
			if t.MemMiB, ok = size(value, 20, 20); !ok {
				return t, false
			}
			continue
		}
		n, ok := size(value, 0, 0)
		if !ok {
			return t, false
		}
		switch gres, typ, is := model.TRESGres(name); {
		case is && typ != "":
			t.Gres = append(t.Gres, model.GresCount{Name: gres, Type: typ, Count: n})
		case is:
			plain[gres] = n
			t.Gres = append(t.Gres, model.GresCount{Name: gres})
		case name == "cpu":
			t.CPUs = int32(min(n, 1<<31-1))
		case name == "node":
			t.Nodes = int32(min(n, 1<<31-1))
		case name == "billing":
			t.Bill = n
		default:
			if license, is := model.TRESLicense(name); is {
				t.Licenses = append(t.Licenses, model.LicenseCount{Name: license, Count: n})
			}
		}
		if len(t.Gres) > maxTRES || len(t.Licenses) > maxTRES {
			return t, false
		}
	}
	t.Gres = rest(t.Gres, plain)
	return t, true
}

// maxTRES bounds the entries of one list.
const maxTRES = 256

// rest leaves of the counts without a type what those with a type don't cover: sacct prints both.
func rest(list []model.GresCount, plain map[string]int64) []model.GresCount {
	for _, g := range list {
		if g.Type != "" {
			if n, both := plain[g.Name]; both {
				plain[g.Name] = max(0, n-g.Count)
			}
		}
	}
	kept := list[:0]
	for _, g := range list {
		if g.Type == "" {
			if g.Count = plain[g.Name]; g.Count == 0 {
				continue
			}
		}
		kept = append(kept, g)
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// exit reads "code:signal".
func exit(text string) (code, signal int32, ok bool) {
	if text == "" {
		return 0, 0, true
	}
	a, b, found := strings.Cut(text, ":")
	if !found {
		b = "0"
	}
	x, err := strconv.ParseUint(a, 10, 16)
	if err != nil {
		return 0, 0, false
	}
	y, err := strconv.ParseUint(b, 10, 8)
	if err != nil || x > 255 || y > 127 {
		return 0, 0, false
	}
	return int32(x), int32(y), true
}

// reasons gives the reasons by their names.
func reasons() map[string]model.Reason {
	out := map[string]model.Reason{}
	for i := 255; i >= 0; i-- {
		out[model.Reason(i).String()] = model.Reason(i)
	}
	out["None"] = 0
	return out
}

// states are Slurm's states that gbatch has under another name.
var states = map[string]model.JobState{
	"RESIZING": model.Resizing, "REVOKED": model.Cancelled, "LAUNCH_FAILED": model.Failed,
	"RECONFIG_FAIL": model.Failed, "SPECIAL_EXIT": model.Failed, "REQUEUE_HOLD": model.Requeued,
	"REQUEUE_FED": model.Requeued, "STAGE_OUT": model.Completing, "SIGNALING": model.Running, "STOPPED": model.Running,
	"RESV_DEL_HOLD": model.Pending, "POWER_UP_NODE": model.Configuring,
}

// state reads a state, and who cancelled the job.
func state(text string) (s model.JobState, by uint32, ok bool) {
	name, after, _ := strings.Cut(text, " ")
	if who, found := strings.CutPrefix(after, "by "); found {
		n, err := strconv.ParseUint(who, 10, 32)
		if err != nil {
			return 0, 0, false
		}
		by = uint32(n)
	}
	if s, ok = model.ParseJobState(name); ok {
		return s, by, true
	}
	s, ok = states[strings.ToUpper(name)]
	return s, by, ok
}
