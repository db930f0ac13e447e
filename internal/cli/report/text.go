package report

import (
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"gbatch/internal/cli/env"
	"gbatch/internal/format"
	"gbatch/internal/model"
	"gbatch/internal/slurmjson"
)

// row is a line of a report: texts by field, and numbers beside them for --json.
type row struct {
	text map[string]string
	num  map[string]int64
}

func newRow() *row { return &row{map[string]string{}, map[string]int64{}} }

// per reports whether times have their share beside them.
func (r *call) per() bool { return strings.HasSuffix(r.unit, "Per") }

// shares reports whether times need the whole cluster's time.
func (r *call) shares() bool { return r.per() || r.unit == "Percent" }

// unitText names the format of times in a heading.
func (r *call) unitText() string {
	switch r.unit {
	case "Percent":
		return "Percentage of Total"
	case "SecPer":
		return "Seconds/Percentage of Total"
	case "MinPer":
		return "Minutes/Percentage of Total"
	case "HourPer":
		return "Hours/Percentage of Total"
	}
	return r.unit
}

// value writes an amount times seconds.
func (r *call) value(n, total int64) string { return r.valueOf("", n, total) }

// valueOf is value for a resource: energy is in joules whatever the unit of times.
func (r *call) valueOf(tres string, n, total int64) string {
	if tres == energy {
		return strconv.FormatInt(n, 10)
	}
	percent := 0.0
	if total > 0 {
		percent = float64(n) / float64(total) * 100
	}
	unit := 1.0
	switch r.unit[0] {
	case 'M':
		unit = 60
	case 'H':
		unit = 3600
	}
	switch {
	case r.unit == "Percent":
		return fmt.Sprintf("%.2f%%", percent)
	case r.per():
		return fmt.Sprintf("%.0f(%.2f%%)", float64(n)/unit, percent)
	}
	return strconv.FormatFloat(float64(n)/unit, 'f', 0, 64)
}

// column is a field of a report.
type column struct {
	name, title string
	width       int
	wide        bool // as wide as its values need
}

// columns are all fields, by the names that Format= takes.
var columns = []column{
	{"Accounts", "Account", 15, false}, {"Allocated", "Allocated", 8, true}, {"Cluster", "Cluster", 9, false},
	{"TresCount", "TRES Count", 10, false}, {"CPUCount", "CPU Count", 9, false}, {"Down", "Down", 8, true},
	{"End", "End", 19, false}, {"Energy", "Energy", 8, false}, {"Idle", "Idle", 8, true}, {"Login", "Login", 9, false},
	{"Name", "Name", 9, false}, {"Nodes", "Nodes", 14, false}, {"PlannedDown", "PLND Down", 8, true},
	{"Planned", "Planned", 8, true}, {"Reserved", "Reserved", 8, true}, {"Proper", "Proper Name", 15, false},
	{"QOS", "QOS", 9, false}, {"Reported", "Reported", 8, true}, {"Start", "Start", 19, false},
	{"TotalTime", "TotalTime", 9, true}, {"TresName", "TRES Name", 14, false}, {"TresTime", "TRES Time", 9, true},
	{"Used", "Used", 8, true}, {"WCKey", "WCKey", 9, false},
	{"Jobs", "Jobs", 8, true}, {"Mean", "Mean", 11, true}, {"W1", "<= 1m", 8, true}, {"W10", "<= 10m", 8, true},
	{"W60", "<= 1h", 8, true}, {"W360", "<= 6h", 8, true}, {"W1440", "<= 1d", 8, true}, {"WMore", "> 1d", 8, true},
	{"Ended", "Ended", 8, true}, {"Completed", "Completed", 9, true}, {"Failed", "Failed", 8, true},
	{"Cancelled", "Cancelled", 9, true}, {"Timeout", "Timeout", 8, true}, {"OutOfMemory", "OutOfMem", 8, true},
	{"NodeFail", "NodeFail", 8, true}, {"Preempted", "Preempted", 9, true}, {"Rate", "Completion", 10, false},
}

// print prints a report: its title, and its rows with the columns that Format= asks for.
func (r *call) print(title, note, fields string, rows []*row, more ...column) error {
	if r.json != "" {
		return r.printJSON(title, rows)
	}
	if !r.noHeader && !r.csv {
		const stamp = "2006-01-02T15:04:05"
		line := strings.Repeat("-", 80)
		fmt.Fprintf(r.Stdout, "%s\n%s %s - %s (%d secs)\n%s\n%s\n", line, title, r.start.Format(stamp),
			r.end.Add(-time.Second).Format(stamp), int64(r.end.Sub(r.start).Seconds()), note, line)
	}
	return r.table(fields, rows, more...)
}

// table prints rows with the columns that Format= asks for.
func (r *call) table(fields string, rows []*row, more ...column) error {
	lang := &format.Language[row]{Noun: "report"}
	for _, c := range append(slices.Clone(columns), more...) {
		width, ofTree := c.width, r.tree && c.name == "Accounts"
		if ofTree {
			width = 20 // with room for the depth
		}
		if c.wide {
			for _, x := range rows {
				width = max(width, utf8.RuneCountInString(x.text[c.name]))
			}
			switch {
			case r.per() && c.width > 9: // sizes
				width = max(width, 20)
			case r.per():
				width = max(width, 17)
			}
		}
		lang.Fields = append(lang.Fields, format.Field[row]{Name: c.name, Title: c.title, Width: width, Left: ofTree,
			Get: func(x *row) string { return r.cell(x.text[c.name]) }})
	}
	if r.fields != "" {
		fields = strings.TrimPrefix(r.fields, ",")
	}
	table, err := lang.Table(fields, r.style)
	if err != nil {
		return env.Fatal{Text: strings.Replace(err.Error(), "Invalid field requested: ", "Unknown field ", 1)}
	}
	list := make([]row, len(rows))
	for i := range rows {
		list[i] = *rows[i]
	}
	return table.Write(r.Stdout, list, !r.noHeader)
}

// usage names the unit of times in a heading.
func (r *call) usage() string {
	switch {
	case r.unit == "Percent":
		return "Usage reported in Percentage of Total"
	case r.tresSet:
		return "Usage reported in TRES " + r.unitText()
	}
	return "Usage reported in CPU " + r.unitText()
}

// cell writes a field: with --csv in quotes if it has something in it that ends one (RFC 4180).
func (r *call) cell(text string) string {
	if !r.csv || !strings.ContainsAny(text, ",\"\r\n") {
		return text
	}
	return `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
}

// printJSON prints a report as JSON: texts, and amounts times seconds.
func (r *call) printJSON(title string, rows []*row) error {
	j := slurmjson.New(r.ListOut(), r.json)
	j.Open("", '{')
	j.Open("report", '{')
	j.Str("title", title)
	j.Time("start", r.rq.Start)
	j.Time("end", r.rq.End)
	j.Close('}')
	j.Open("rows", '[')
	for _, x := range rows {
		j.Open("", '{')
		for _, k := range sortedKeys(x.text) {
			if _, number := x.num[k]; !number {
				j.Str(snake(k), x.text[k])
			}
		}
		for _, k := range sortedKeys(x.num) {
			j.Num(snake(k), x.num[k])
		}
		j.Close('}')
		j.Flush(false)
	}
	j.Close(']')
	return r.JSONTail(j, r.cluster, 0)
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// snake writes a field's name as members of objects are named.
func snake(s string) string {
	var b strings.Builder
	for i, c := range s {
		if c >= 'A' && c <= 'Z' {
			if i > 0 && s[i-1] >= 'a' && s[i-1] <= 'z' {
				b.WriteByte('_')
			}
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// properName gives a user's name as people know it; "" if this host does not know the user.
func properName(login string) string {
	u, err := user.Lookup(login)
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(u.Name, ",")
	return name
}

// amount gives a number of a list of resources, whose names are in any case of letters, as those of --tres.
func amount(list []model.TRESCount, tres string) (n int64) {
	for i := range list {
		if strings.EqualFold(list[i].TRES, tres) {
			n += list[i].Count
		}
	}
	return n
}
