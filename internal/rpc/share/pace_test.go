package share

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestPaceFollowsTheOthers: a user who is alone may make any number of changes; beside others no more than they all
// make together, but the least rate in any case.
func TestPaceFollowsTheOthers(t *testing.T) {
	const least = 250
	p := NewPace(least)
	now := time.Now()
	for range 10_000 {
		now = now.Add(time.Millisecond)
		if r := p.rate("many", 1, now); r != 0 && now.Sub(p.others) > paceAlone {
			t.Fatalf("alone, a user may have %.0f a second", r)
		}
	}
	p.rate("few", 1, now)
	if r := p.rate("many", 1, now); r != least {
		t.Errorf("beside one who makes few changes a user may have %.0f a second, want %d", r, least)
	}
	for range 10_000 { // the other one makes 1000 a second, and the first tries 5000
		now = now.Add(time.Millisecond)
		p.rate("few", 1, now)
		for range 5 {
			p.rate("many", 1, now)
		}
	}
	if r := p.rate("many", 1, now); r < 900 || r > 1100 {
		t.Errorf("beside 1000 changes a second of others a user may have %.0f", r)
	}
	if r := p.rate("few", 1, now); r < 4000 {
		t.Errorf("the modest user may have %.0f a second", r)
	}
}

// TestPaceKnowsTheMachine: where a unit takes much of the CPU a user has fewer of them.
func TestPaceKnowsTheMachine(t *testing.T) {
	for _, x := range []struct {
		unit time.Duration // CPU time
		want float64
	}{
		{100 * time.Microsecond, 250},
		{time.Millisecond, 125},
		{10 * time.Millisecond, 50},
	} {
		spent := time.Duration(0)
		p := NewPace(250)
		p.Part, p.Spent = 0.125, func() time.Duration { return spent }
		now := time.Now()
		for i := range 1001 { // 200 units a second, in whole seconds
			now = now.Add(5 * time.Millisecond)
			spent += x.unit
			p.rate([]string{"many", "few"}[i%100/99], 1, now)
		}
		if r := p.rate("many", 1, now); r < x.want*0.95 || r > x.want*1.05 {
			t.Errorf("a unit takes %v: a user has %.0f a second, want %.0f", x.unit, r, x.want)
		}
		for range 20 { // little is asked for, and much else is done
			now = now.Add(100 * time.Millisecond)
			spent += 50 * time.Millisecond
			p.rate("few", 1, now)
		}
		if r := p.rate("many", 1, now); r < x.want*0.95 || r > x.want*1.05 {
			t.Errorf("a unit takes %v: after other work a user has %.0f a second, want %.0f", x.unit, r, x.want)
		}
	}
}

// TestPaceRefuses: a change that would have to wait for longer than commands wait is refused, and others' are made at
// once.
func TestPaceRefuses(t *testing.T) {
	p := NewPace(250)
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // nobody waits in this test
	wait := func(name string, units float64, free bool) error {
		_, err := p.Wait(ctx, name, units, free)
		return err
	}
	for _, x := range []struct {
		name  string
		units float64
		free  bool
		want  error
	}{
		{"few", 1, false, nil},
		{"many", 16_000, false, nil}, // the burst allows one of any size
		{"many", 1, false, ErrOwes},
		{"few", 1, false, nil},
		{"root", 16_000, true, nil},
		{"root", 1, true, nil},
	} {
		if err := wait(x.name, x.units, x.free); !errors.Is(err, x.want) {
			t.Errorf("%v of %s: %v", x.units, x.name, err)
		}
	}
}
