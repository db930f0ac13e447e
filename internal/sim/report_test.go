package sim

import (
	"context"
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// comparedRandom replays a small workload with several rules.
func comparedRandom(t *testing.T, rules ...string) (outs []*Outcome, ms []*Metrics) {
	for _, name := range rules {
		w := randomWork(rand.New(rand.NewPCG(3, 3)), 12, 400)
		m, err := NewMachine(w, Size{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewScheduler(name, m)
		if err != nil {
			t.Fatal(err)
		}
		o, err := Replay(context.Background(), Setup{Work: w, Machine: m, Scheduler: s})
		if err != nil {
			t.Fatal(err)
		}
		outs, ms = append(outs, o), append(ms, o.Measure())
	}
	return outs, ms
}

// TestCompare: the table has one column for each rule, and a star at the best values of a line, ties included.
func TestCompare(t *testing.T) {
	list := []*Metrics{{Jobs: 5, AvgWait: 10, MaxWait: 7, Utilization: 0.5, Unit: "GPU"},
		{Jobs: 5, AvgWait: 9, MaxWait: 7, Utilization: 0.6, Unit: "GPU"}}
	b := &strings.Builder{}
	if err := Compare(b, "x", list, []string{"one", "two"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`jobs +5 +5 *\n`, `average wait, s +10.00 +9.00 \*`, `longest wait, s +7 \* +7 \*`,
		`utilization +50.00 % +60.00 % \*`} {
		if !regexp.MustCompile(want).MatchString(b.String()) {
			t.Errorf("no line matches %s:\n%s", want, b.String())
		}
	}
}

// TestPlot: the drawing is XML, all of its text begins and ends within its frame, and moments are at round distances.
func TestPlot(t *testing.T) {
	rules := []string{DefaultScheduler, "easy", "wfp3", "unicef", "easy-sjbf", "conservative"}
	outs, ms := comparedRandom(t, rules...)
	b := &strings.Builder{}
	if err := Plot(b, outs, ms, rules); err != nil {
		t.Fatal(err)
	}
	edge := drawing{to: 30 * 86400, epoch: 11575 * 86400, labels: rules} // a date stands where the frame ends
	edge.times(0)
	b.WriteString(edge.b.String())
	dec := xml.NewDecoder(strings.NewReader(b.String()))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	text := regexp.MustCompile(`<text x="([0-9.]+)" y="([0-9.]+)" text-anchor="(\w+)"[^>]*>([^<]*)<`)
	high, err := strconv.ParseFloat(regexp.MustCompile(`viewBox="0 0 960 (\d+)"`).FindStringSubmatch(b.String())[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range text.FindAllStringSubmatch(b.String(), -1) {
		x, _ := strconv.ParseFloat(m[1], 64) // digits and points
		y, _ := strconv.ParseFloat(m[2], 64)
		wide := 6.6 * float64(len(m[4]))
		switch m[3] {
		case "middle":
			x -= wide / 2
		case "end":
			x -= wide
		}
		if x < 0 || x+wide > plotWide || y > high {
			t.Errorf("%q at %.0f, %.0f leaves the frame", m[4], x, y)
		}
		for _, r := range rules {
			if strings.HasPrefix(m[4], r+":") {
				named[r] = true
			}
		}
	}
	if len(named) != len(rules) {
		t.Errorf("the legend names %v", named)
	}
	for _, e := range edge.legend([]*Metrics{{AvgWait: 6834.59}, {AvgWait: 5903.69}, {AvgWait: 12}}) {
		if !strings.Contains(e.text, " h, ") {
			t.Errorf("waits of one plot have several units: %s", e.text)
		}
	}
	for most, want := range map[float64][]float64{0: {0, 1}, 3: {0, 1, 2, 3}, 7: {0, 2, 4, 6, 8},
		121: {0, 25, 50, 75, 100, 125}, 378: {0, 100, 200, 300, 400}, 1_001: {0, 250, 500, 750, 1000, 1250}} {
		if got := roundTicks(most); !slices.Equal(got, want) {
			t.Errorf("ticks to %v are %v", most, got)
		}
	}
	for _, c := range []struct{ from, to, epoch, first, step int64 }{
		{0, 340 * 86400, 0, 0, 50 * 86400},
		{100, 100 + 3*3600, 0, 100, 1800},
		{600, 600 + 7*86400, 1_000_000_000, 1_000_080_000 - 1_000_000_000, 86400},
	} {
		d := drawing{from: c.from, to: c.to, epoch: c.epoch}
		if first, step := d.moments(); first != c.first || step != c.step {
			t.Errorf("%v: from %d in steps of %d", c, first, step)
		}
	}
}
