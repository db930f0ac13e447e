package sim

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Print writes the report for people.
func (m *Metrics) Print(w io.Writer, name string) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s on %s\n", name, m.Machine)
	fmt.Fprintf(b, "%s: %s\n", m.Scheduler, m.Policy)
	fmt.Fprintf(b, "planned once per %s, with the run times that %s\n\n",
		map[string]string{"batch": "second", "single": "event"}[m.Events],
		map[string]string{"": "users asked for", "requested": "users asked for", "actual": "jobs really had"}[m.Estimates])
	t := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	row := func(what, value string) { fmt.Fprintf(t, "  %s\t%s\n", what, value) }
	row("jobs", group(int64(m.Jobs))+leftText(m))
	row("wait", fmt.Sprintf("average %s   half %s   90%% %s   99%% %s   longest %s", span(m.AvgWait),
		span(float64(m.WaitP50)), span(float64(m.WaitP90)), span(float64(m.WaitP99)), span(float64(m.MaxWait))))
	row("in seconds", fmt.Sprintf("average %.2f   longest %d", m.AvgWait, m.MaxWait))
	row("bounded slowdown", fmt.Sprintf("average %.4f   half %.2f   90%% %.2f   99%% %.2f", m.AvgSlowdown, m.SlowdownP50,
		m.SlowdownP90, m.SlowdownP99))
	row("utilization", fmt.Sprintf("%.2f %% of %s %ss over %s", m.Utilization*100, group(int64(m.Total)), m.Unit,
		span(float64(m.MakespanS))))
	if m.GPU != nil {
		row("fragmentation",
			fmt.Sprintf("%.2f %% of the free GPUs are out of the jobs' reach where they are (mean over time)",
				m.GPU.Fragments*100))
	}
	if m.Fairness > 0 {
		row("fairness", fmt.Sprintf("%.3f (Jain's index of the users' mean slowdown: 1 is equal)", m.Fairness))
	}
	if p := m.Preempted; p != nil {
		row("preempted", fmt.Sprintf("suspended %s times, requeued %s times, %s jobs cancelled; %.1f %s-hours of work lost",
			group(int64(p.Suspended)), group(int64(p.Requeued)), group(int64(p.Cancelled)), p.Lost, m.Unit))
	}
	if e := m.Elastic; e != nil {
		row("elastic", fmt.Sprintf("%s jobs grew %s times and gave back %s times; %.2f of the trace's nodes while they ran",
			group(int64(e.Jobs)), group(int64(e.Grown)), group(int64(e.Shrunk)), e.Nodes))
	}
	if m.Shake != nil {
		row("shaken", fmt.Sprintf("submissions shifted by 0 to %d seconds, seed %d", m.Shake.Seconds, m.Shake.Seed))
	}
	for _, n := range m.Notes {
		row("note", n)
	}
	row("digest", m.Digest)
	t.Flush()
	if len(m.Sizes) > 0 {
		fmt.Fprintf(b, "\n")
		t = tabwriter.NewWriter(b, 0, 8, 3, ' ', tabwriter.AlignRight)
		fmt.Fprintf(t, "%ss\tjobs\t%s-hours\taverage wait\t90%% wait\tslowdown\t\n", m.Unit, m.Unit)
		for _, s := range m.Sizes {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%.2f\t\n", s.Size, group(int64(s.Jobs)), group(int64(math.Round(s.Hours))),
				span(s.AvgWait), span(float64(s.WaitP90)), s.AvgSlowdown)
		}
		t.Flush()
	}
	if len(m.Users) > 0 {
		fmt.Fprintf(b, "\n")
		t = tabwriter.NewWriter(b, 0, 8, 3, ' ', tabwriter.AlignRight)
		fmt.Fprintf(t, "user\tjobs\t%s-hours\taverage wait\tslowdown\t\n", m.Unit)
		for _, u := range m.Users {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.2f\t\n", u.User, group(int64(u.Jobs)), group(int64(math.Round(u.Hours))),
				span(u.AvgWait), u.AvgSlowdown)
		}
		t.Flush()
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// leftText says which jobs are no part of the result.
func leftText(m *Metrics) string {
	var parts []string
	for _, l := range m.Left {
		parts = append(parts, fmt.Sprintf("%s %s", group(int64(l.Jobs)), l.Why))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (left out: " + strings.Join(parts, "; ") + ")"
}

// span writes seconds in readable units.
func span(s float64) string { return spanLike(s, s) }

// spanLike writes a time in the unit that another one has: times that stand beside each other have one unit.
func spanLike(s, other float64) string {
	switch {
	case other < 100:
		return fmt.Sprintf("%.0f s", s)
	case other < 100*60:
		return fmt.Sprintf("%.1f min", s/60)
	case other < 72*3600:
		return fmt.Sprintf("%.1f h", s/3600)
	}
	return fmt.Sprintf("%.1f d", s/86400)
}

// group writes a count with commas.
func group(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Compare writes several results side by side, one column each, and marks the best of each line with a star. Values
// that show the same are equally good.
func Compare(w io.Writer, name string, list []*Metrics, labels []string) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s (* the best)\n\n", name)
	t := tabwriter.NewWriter(b, 0, 8, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\t"+strings.Join(labels, "  \t")+"  \t")
	row := func(what string, better int, show func(float64) string, get func(*Metrics) float64) {
		best := math.NaN() // a rule without such jobs has no value, and is not the best
		for _, m := range list {
			if v := get(m); math.IsNaN(best) || better < 0 && v < best || better > 0 && v > best {
				best = v
			}
		}
		line := what + "\t"
		for _, m := range list {
			text := "-"
			if v := get(m); !math.IsNaN(v) {
				text = show(v)
			}
			if better != 0 && text == show(best) {
				text += " *"
			} else {
				text += "  "
			}
			line += text + "\t"
		}
		fmt.Fprintln(t, line)
	}
	const less, more = -1, 1
	count := func(v float64) string { return group(int64(v)) }
	two := func(v float64) string { return fmt.Sprintf("%.2f", v) }
	percent := func(v float64) string { return fmt.Sprintf("%.2f %%", v*100) }
	row("jobs", 0, count, func(m *Metrics) float64 { return float64(m.Jobs) })
	row("average wait, s", less, two, func(m *Metrics) float64 { return m.AvgWait })
	row("half wait at most, s", less, count, func(m *Metrics) float64 { return float64(m.WaitP50) })
	row("90 % wait at most, s", less, count, func(m *Metrics) float64 { return float64(m.WaitP90) })
	row("99 % wait at most, s", less, count, func(m *Metrics) float64 { return float64(m.WaitP99) })
	row("longest wait, s", less, count, func(m *Metrics) float64 { return float64(m.MaxWait) })
	row("average bounded slowdown", less, two, func(m *Metrics) float64 { return m.AvgSlowdown })
	row("utilization", more, percent, func(m *Metrics) float64 { return m.Utilization })
	row("fairness", more, func(v float64) string { return fmt.Sprintf("%.3f", v) },
		func(m *Metrics) float64 { return m.Fairness })
	sizes := map[string]bool{}
	for _, m := range list {
		for _, s := range m.Sizes {
			sizes[s.Size] = true
		}
	}
	for c := -1; c < maxClass; c++ {
		if name := className(c); sizes[name] {
			row(fmt.Sprintf("slowdown, %ss: %s", list[0].Unit, name), less, two, func(m *Metrics) float64 {
				for _, s := range m.Sizes {
					if s.Size == name {
						return s.AvgSlowdown
					}
				}
				return math.NaN()
			})
		}
	}
	line := "digest\t"
	for _, m := range list {
		line += m.Digest + "  \t"
	}
	fmt.Fprintln(t, line)
	t.Flush()
	_, err := io.WriteString(w, b.String())
	return err
}
