package page

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"regexp"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// functions is what templates call.
var functions = template.FuncMap{
	"clock":   clock,
	"stamp":   func(t model.Time) string { return moment(t).Format(time.RFC3339) },
	"span":    span,
	"limit":   func(s int64) string { return walltime.Limit(s, s == model.Unlimited) },
	"mem":     walltime.FormatMem,
	"count":   count,
	"plural":  plural,
	"version": version,
	"single":  func(nodes string) bool { return nodes != "" && !strings.ContainsAny(nodes, "[,") },
	"lower":   func(v any) string { return strings.ToLower(fmt.Sprint(v)) },
	"pct":     func(part, whole float64) float64 { return 100 * part / max(1e-9, whole) },
	"list":    func(v ...any) []any { return v },
	"dict":    dict,
}

// dict makes a map of names and values for a template within a template.
func dict(v ...any) (map[string]any, error) {
	out := map[string]any{}
	for i := 0; i+1 < len(v); i += 2 {
		name, ok := v[i].(string)
		if !ok {
			return nil, fmt.Errorf("%v is no name", v[i])
		}
		out[name] = v[i+1]
	}
	return out, nil
}

// sentence makes a text begin with a capital letter, unless that letter is part of a name or an option.
func sentence(text string) string {
	first, n := utf8.DecodeRuneInString(text)
	if word, _, _ := strings.Cut(text, " "); word == "" || strings.ContainsAny(word, "_/=.[") {
		return text
	}
	return string(unicode.ToUpper(first)) + text[n:]
}

// reasons are short sentences for the reasons that many jobs have. Page /why says more, to the script.
var reasons = map[model.Reason]string{
	model.ReasonNone:                     "Has not been looked at yet",
	model.ReasonPriority:                 "Jobs with a higher priority come first",
	model.ReasonResources:                "What it asks for is not free",
	model.ReasonLicenses:                 "Its licenses are not free",
	model.ReasonReservation:              "Waits for its reservation",
	model.ReasonReservationDeleted:       "Its reservation no longer exists",
	model.ReasonDependency:               "Waits for another job",
	model.ReasonDependencyNeverSatisfied: "Waits for what can't come true any more",
	model.ReasonBeginTime:                "Its time to begin has not come",
	model.ReasonJobHeldAdmin:             "Held by an operator",
	model.ReasonJobHeldUser:              "Held by its owner",
	model.ReasonReqNodeNotAvail:          "A node that it needs is not available",
	model.ReasonBadConstraints:           "No node can ever hold it",
	model.ReasonPartitionDown:            "Its partition is down",
	model.ReasonPartitionInactive:        "Its partition is inactive",
	model.ReasonPartitionTimeLimit:       "Asks for more time than its partition allows",
	model.ReasonPartitionNodeLimit:       "Asks for more or fewer nodes than its partition allows",
	model.ReasonJobArrayTaskLimit:        "As many tasks of its array run as may at once",
}

// reasonText says a job's reason in a short sentence; limits keep Slurm's word, which names them.
func reasonText(r model.Reason) string {
	if text := reasons[r]; text != "" {
		return text
	}
	word := r.String()
	if strings.HasPrefix(word, "QOS") || strings.HasPrefix(word, "Assoc") || strings.HasPrefix(word, "Max") {
		return "A limit holds it: " + word
	}
	return word
}

func moment(t model.Time) time.Time { return time.UnixMilli(int64(t)) }

// clock writes a moment as short as it is clear: the time today, the day and time in the days around, then the date.
func clock(t, now model.Time) string {
	if t == 0 {
		return ""
	}
	m, n := moment(t), moment(now)
	switch days := m.Sub(n).Abs(); {
	case m.Format(time.DateOnly) == n.Format(time.DateOnly):
		return m.Format("15:04")
	case days < 6*24*time.Hour:
		return m.Format("Mon 15:04")
	case days < 300*24*time.Hour:
		return m.Format("Jan 2 15:04")
	}
	return m.Format("2006-01-02")
}

// span writes a time in seconds with two units: 45 s, 12 min, 3 h 05, 2 d 4 h.
func span(s int64) string {
	switch {
	case s < 0:
		return ""
	case s < 60:
		return fmt.Sprintf("%d\u00a0s", s)
	case s < 3600:
		return fmt.Sprintf("%d\u00a0min", s/60)
	case s < 24*3600:
		return fmt.Sprintf("%d\u00a0h\u00a0%02d", s/3600, s/60%60)
	}
	return fmt.Sprintf("%d\u00a0d\u00a0%d\u00a0h", s/86400, s/3600%24)
}

// count writes a number with thin spaces between thousands.
func count(v any) string {
	text, behind, point := strings.Cut(fmt.Sprint(v), ".")
	if point {
		behind = "." + behind
	}
	head := ""
	if strings.HasPrefix(text, "-") {
		head, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return head + text + behind
}

// released are ends of sentences that name a command where the page has a button.
var released = regexp.MustCompile(`; gcontrol release \S+ lets it go$`)

// beside is a sentence that stands beside the buttons of its job.
func beside(text string) string { return released.ReplaceAllString(text, "") }

// plural writes a number with its noun.
func plural(n any, one, many string) string {
	if fmt.Sprint(n) == "1" {
		return "1 " + one
	}
	return count(n) + " " + many
}

// version changes with the files of style and script, so that browsers may keep them.
var version = sync.OnceValue(func() string {
	sum := sha256.New()
	for _, name := range []string{"page.css", "page.js", "icon.svg"} {
		data, err := files.ReadFile("assets/" + name)
		if err != nil {
			return "0" // they are part of the program
		}
		_, _ = sum.Write(data) // it never fails
	}
	return hex.EncodeToString(sum.Sum(nil))[:12]
})

// class gives the look of a job's state: held, waits, runs, ends, good, bad, gone.
func class(j *model.Job) string {
	if j.State == model.Pending && j.Hold != model.NotHeld {
		return "held"
	}
	return classOf(j.State)
}

func classOf(s model.JobState) string {
	switch s {
	case model.Pending:
		return "waits"
	case model.Running, model.Configuring:
		return "runs"
	case model.Completing, model.Suspended:
		return "ends"
	case model.Completed:
		return "good"
	case model.Cancelled, model.Preempted:
		return "gone"
	}
	return "bad"
}

// bar is a share of something, drawn: its width in hundredths.
type bar struct {
	Pct   int64
	Label string
	Class string
}

func barOf(part, whole int64, label string) *bar {
	if whole <= 0 {
		return nil
	}
	return &bar{Pct: min(100, max(0, 100*part/whole)), Label: cmp.Or(label, fmt.Sprintf("%d\u00a0%%", 100*part/whole))}
}
