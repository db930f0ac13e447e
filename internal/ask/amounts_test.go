package ask

import (
	"errors"
	"testing"

	"gbatch/internal/model"
)

func TestAmounts(t *testing.T) {
	type read struct {
		tres  string
		count int64 // -1: none
		share int64 // hundredths of a percent; -1: no percentage
	}
	for _, c := range []struct {
		list string
		want []read
	}{
		{"", nil},
		{"CPU=4, mem=8G ,node=2", []read{{"cpu", 4, -1}, {"mem", 8192, -1}, {"node", 2, -1}}},
		{"gres/gpu=2k,gres/gpu:A100:1,GRES/shard=1g", []read{{"gres/gpu", 2048, -1}, {"gres/gpu:A100", 1, -1},
			{"gres/shard", 1 << 30, -1}}},
		{"cpu=2,2,1", []read{{"cpu", 2, -1}, {"", 2, -1}, {"", 1, -1}}},
		{"gres/gpu=12.5%,cpu=100%", []read{{"gres/gpu", -1, 1250}, {"cpu", -1, 10000}}},
		{"License/Matlab=3", []read{{"license/Matlab", 3, -1}}},
		{"cpu=-1,cpu=x,cpu=9223372036854775807,cpu=9223372036854775807k", []read{{"cpu", -1, -1}, {"cpu", -1, -1},
			{"cpu", 1<<63 - 1, -1}, {"cpu", -1, -1}}},
	} {
		var got []read
		for a := range Amounts(c.list) {
			r := read{a.TRES, -1, -1}
			if n, err := a.Count(); err == nil {
				r.count = n
			}
			if n, is, err := a.Percent(); is && err == nil {
				r.share = n
			}
			got = append(got, r)
		}
		if len(got) != len(c.want) {
			t.Errorf("%q: %+v, want %+v", c.list, got, c.want)
			continue
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%q: word %d is %+v, want %+v", c.list, i+1, got[i], c.want[i])
			}
		}
	}
	for _, text := range []string{"101%", "-1%", "%", "x%", "NaN%"} {
		a := Amount{TRES: "cpu", Text: text}
		if n, is, err := a.Percent(); !is || err == nil {
			t.Errorf("%s is %d hundredths of a percent", text, n)
		}
	}
}

func TestCheckTimes(t *testing.T) {
	const now model.Time = 1_700_000_000_000
	for _, c := range []struct {
		name            string
		limit, least    int64
		begin, deadline model.Time
		about           About // of the refusal
		fits            bool
	}{
		{"no deadline", model.Unlimited, 0, 0, 0, 0, true},
		{"just in time", 60, 0, 0, now.Add(60), 0, true},
		{"a second too long", 61, 0, 0, now.Add(60), Moment, false},
		{"the least fits", 3600, 60, 0, now.Add(60), 0, true},
		{"it begins too late", 60, 0, now.Add(1), now.Add(60), Moment, false},
		{"over", 60, 0, 0, now, Time, false},
		{"over, without a limit", model.Unlimited, 0, 0, now, Time, false},
		{"it begins after its deadline, without a limit", model.Unlimited, 0, now.Add(120), now.Add(60), Moment, false},
		{"no limit", model.Unlimited, 0, 0, now.Add(60), Time, false},
		{"no limit, but a least time", model.Unlimited, 60, 0, now.Add(60), 0, true},
	} {
		sp := &model.Spec{LimitS: c.limit, Begin: c.begin, Deadline: c.deadline, More: &model.Needs{TimeMinS: c.least}}
		err := CheckTimes(sp, now)
		var no *Error
		if c.fits != (err == nil) || !c.fits && (!errors.As(err, &no) || no.About != c.about) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	for text, ok := range map[string]bool{MomentText(now): true, "1700000000000": false, "@": false, "@x": false} {
		if m, is := ParseMoment(text); is != ok || ok && m != now {
			t.Errorf("%s: %d, %v", text, m, is)
		}
	}
}
