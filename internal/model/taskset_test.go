package model

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/wire"
)

func TestParseTaskSet(t *testing.T) {
	for _, c := range []struct {
		text     string
		want     string
		throttle int32
		count    int
	}{
		{"0", "0", 0, 1},
		{"0-15", "0-15", 0, 16},
		{"1,3,5-7", "1,3,5-7", 0, 5},
		{"0-30:4", "0-28:4", 0, 8},
		{"0-99%8", "0-99", 8, 100},
		{"[0-99%8]", "0-99", 8, 100},
		{"[0-99]%8", "0-99", 8, 100},
		{"[3]", "3", 0, 1},
		{"7-7", "7", 0, 1},
		{"7-9:5", "7", 0, 1},
		{"5,1", "1,5", 0, 2},
		{"2,1", "1-2", 0, 2},
		{"3,3,3", "3", 0, 1},
		{"0-4,2-6", "0-6", 0, 7},
		{"0-6:2,1-7:2", "0-7", 0, 8},
		{"0-8:4,4", "0-8:4", 0, 3},
		{"10-12,0-2", "0-2,10-12", 0, 6},
		{"1,2,4,8,0", "0-2,4,8", 0, 5},
		{"0-2147483646:2147483646", "0-2147483646:2147483646", 0, 2},
		{"2147483600-2147483646:40", "2147483600-2147483640:40", 0, 2},
	} {
		set, throttle, err := ParseTaskSet(c.text, math.MaxInt32)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if set.String() != c.want || throttle != c.throttle || set.Count() != c.count {
			t.Errorf("%s: %s%%%d with %d tasks, want %s%%%d with %d", c.text, set, throttle, set.Count(), c.want, c.throttle,
				c.count)
		}
		n := 0
		set.Each(func(i int32) bool {
			n++
			if !set.Has(i) || i < set.Min() || i > set.Max() {
				t.Errorf("%s: %d is listed and not a member", c.text, i)
			}
			return true
		})
		if n != c.count {
			t.Errorf("%s: lists %d tasks", c.text, n)
		}
	}
}

func TestParseTaskSetRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                         "no task index",
		"[]":                       "no task index",
		"%4":                       "no task index",
		"x":                        "'x' is not a task index",
		"-1":                       "'' is not a task index",
		"1-":                       "'' is not a task index",
		"0--0":                     "'-0' is not a task index",
		"+1":                       "'+1' is not a task index",
		"1 ,2":                     "'1 ' is not a task index",
		"1,,2":                     "'' is not a task index",
		"5-3":                      "runs backwards",
		"5:2":                      "needs a range before it",
		"0-5:0":                    "not a whole number from 1",
		"0-5:x":                    "not a whole number from 1",
		"0-5%x":                    "after %",
		"0-5%":                     "after %",
		"0-5%+3":                   "after %",
		"0-5%2%3":                  "after %",
		"0-1001":                   "index 1001 is not below MaxArraySize (1001)",
		"99999999999":              "is not a task index",
		strings.Repeat("1,", 5000): "more than 4096 ranges",
	} {
		set, _, err := ParseTaskSet(text, 1001)
		if !errors.Is(err, ErrTaskSet) || !strings.Contains(fmt.Sprint(err), want) || set != nil {
			t.Errorf("%.20q: got %v and %v, want %q", text, set, err, want)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("%.20q: the error has %d bytes", text, len(err.Error()))
		}
	}
	if _, _, err := ParseTaskSet("0-2000000,5", math.MaxInt32); err == nil ||
		!strings.Contains(err.Error(), "overlapping") {
		t.Errorf("two million overlapping tasks: %v", err)
	}
}

func TestTaskSetWithout(t *testing.T) {
	for _, text := range []string{"0-9", "0-30:5", "1,3,5-7", "4", "0-2147483646:2147483646", "2147483646"} {
		set, _, err := ParseTaskSet(text, math.MaxInt32)
		if err != nil {
			t.Fatal(err)
		}
		var all []int32
		set.Each(func(i int32) bool { all = append(all, i); return true })
		before := set.String()
		for _, gone := range all {
			less := set.MinusSet(TaskSet{{gone, gone, 1}})
			want := slices.DeleteFunc(slices.Clone(all), func(i int32) bool { return i == gone })
			var got []int32
			less.Each(func(i int32) bool { got = append(got, i); return true })
			if !slices.Equal(got, want) || less.Count() != len(want) || less.Has(gone) || !less.Valid() {
				t.Errorf("%s without %d is %s", text, gone, less)
			}
			if len(want) == 0 && less != nil {
				t.Errorf("%s without %d is not nil", text, gone)
			}
		}
		if got := set.MinusSet(TaskSet{{77777, 77777, 1}}).String(); got != before || set.String() != before {
			t.Errorf("%s changed into %s", before, got)
		}
	}
	set, _, err := ParseTaskSet("0-9", 100)
	if err != nil {
		t.Fatal(err)
	}
	odd, _, err := ParseTaskSet("1-9:2,50", 100)
	if err != nil {
		t.Fatal(err)
	}
	if got := set.MinusSet(odd).String(); got != "0-8:2" {
		t.Errorf("0-9 minus 1-9:2 is %s", got)
	}
	if (TaskSet)(nil).Min() != -1 || (TaskSet)(nil).Max() != -1 || (TaskSet)(nil).Count() != 0 {
		t.Error("the empty set has members")
	}
}

// TestTaskSetMinus: what is left of one set without another is right, and in few ranges.
func TestTaskSetMinus(t *testing.T) {
	for _, c := range [][3]string{{"0-9", "0-9:2", "1-9:2"}, {"0-9", "0-9", ""}, {"0-8", "0-6:3", "1-2,4-5,7-8"},
		{"0-9", "3", "0-2,4-9"}, {"0-20:5", "10", "0-5:5,15-20:5"}, {"0-3,7-9", "2-8", "0-1,9"},
		{"1,3,5,7,8", "8", "1-7:2"}, {"0-8:2", "1-7:2", "0-8:2"}, {"1-9:2,11", "1", "3-11:2"},
		{"0-9", "20-30", "0-9"}, {"0-6:3,9-15:3", "4", "0-15:3"}} {
		set, _, _ := ParseTaskSet(c[0], 1000)
		gone, _, _ := ParseTaskSet(c[1], 1000)
		if got := set.MinusSet(gone).String(); got != c[2] {
			t.Errorf("%s without %s is %s, want %s", c[0], c[1], got, c[2])
		}
	}
	draw := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		pick := func() (list []int32) {
			step, share := 1+draw.Int32N(4), 1+draw.IntN(5)
			for i := draw.Int32N(5); i < 60; i += step {
				if draw.IntN(6) < share {
					list = append(list, i)
				}
			}
			return list
		}
		a, b := pick(), pick()
		left := slices.DeleteFunc(slices.Clone(a), func(i int32) bool { return slices.Contains(b, i) })
		set, gone := TaskSetOf(a), TaskSetOf(b)
		before := set.String()
		got := set.MinusSet(gone)
		var all []int32
		got.Each(func(i int32) bool { all = append(all, i); return true })
		if !slices.Equal(all, left) || !got.Valid() || set.String() != before || len(got) > len(left) {
			t.Fatalf("%s without %s is %s", set, gone, got)
		}
		for i := range int32(64) {
			if got.Has(i) != slices.Contains(left, i) {
				t.Fatalf("%s has %d: %v", got, i, got.Has(i))
			}
		}
	}
	// Every second of a million, and then every second of the rest.
	set := TaskSet{{0, 999_999, 1}}
	set = set.MinusSet(TaskSet{{0, 999_998, 2}})
	set = set.MinusSet(TaskSet{{1, 999_997, 4}})
	if set.String() != "3-999999:4" {
		t.Errorf("%d ranges are left, the first ones %.40s", len(set), set)
	}
}

func TestTaskSetValid(t *testing.T) {
	for _, bad := range []TaskSet{{{0, 5, 0}}, {{0, 5, -1}}, {{5, 0, 1}}, {{-1, 5, 1}}, {{0, 5, 1}, {5, 9, 1}},
		{{7, 9, 1}, {0, 3, 1}}} {
		if bad.Valid() {
			t.Errorf("%v counts as valid", bad)
		}
	}
	if !(TaskSet{{0, 5, 2}, {7, 7, 1}}).Valid() || !(TaskSet)(nil).Valid() {
		t.Error("a valid set does not count as one")
	}
}

// TestMostRanges: what can be left of the largest array is stored and read again, whichever of its tasks have gone.
func TestMostRanges(t *testing.T) {
	var left []int32
	for i := int32(0); i < 4_000_000; i += 5 { // no two of them, nor three, make a range
		left = append(left, i, i+2)
	}
	j := &Job{ID: 1, ArrayID: 1, Tasks: TaskSetOf(left)}
	data, err := wire.Values(func(c *wire.C) { wire.Struct(c, j) })
	if err != nil {
		t.Fatalf("%d ranges: %v", len(j.Tasks), err)
	}
	back := new(Job)
	if _, err := wire.ReadValuesWith(data, wire.AsIs, func(c *wire.C) { wire.Struct(c, back) }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(back.Tasks, j.Tasks) {
		t.Error("other tasks are read than were written")
	}
}

func FuzzParseTaskSet(f *testing.F) {
	for _, s := range []string{"0-15", "1,3,5-7", "0-30:4", "0-99%8", "[1-3]", "5,1", "0-4,2-6", "9-1", "%",
		"0-2147483646"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const maxSize = 5000
		set, throttle, err := ParseTaskSet(text, maxSize)
		if err != nil {
			if set != nil || throttle != 0 {
				t.Fatal("an error, and a result")
			}
			return
		}
		if !set.Valid() || set.Count() < 1 || set.Max() >= maxSize || throttle < 0 {
			t.Fatalf("%q gives %v%%%d", text, set, throttle)
		}
		again, _, err := ParseTaskSet(set.String(), maxSize)
		if err != nil || !slices.Equal(again, set) {
			t.Fatalf("%q gives %s, which reads as %s (%v)", text, set, again, err)
		}
		min := set.Min()
		if !set.Has(min) || !set.Has(set.Max()) || set.MinusSet(TaskSet{{min, min, 1}}).Count() != set.Count()-1 {
			t.Fatalf("%q: %s is not consistent", text, set)
		}
	})
}
