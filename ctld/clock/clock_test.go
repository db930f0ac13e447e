package clock

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gbatch/internal/model"
)

// host is a host whose clocks a test sets.
type host struct {
	wall model.Time
	boot time.Duration
}

// pass lets time go by on the host, in steps, as a busy leader reads its clock.
func (h *host) pass(c *Clock, d time.Duration) {
	const step = 10 * time.Second
	for ; d > 0; d -= step {
		s := min(step, d)
		h.boot += s
		h.wall += model.Time(s / time.Millisecond)
		c.Now()
	}
}

// set is what an administrator or NTP does.
func (h *host) set(by time.Duration) { h.wall += model.Time(by / time.Millisecond) }

func (h *host) clock() *Clock {
	return New(func() model.Time { return h.wall }, func() time.Duration { return h.boot })
}

const noon = model.Time(1_800_000_000_000)

func near(t *testing.T, what string, got, want model.Time, off time.Duration) {
	t.Helper()
	if d := time.Duration(got-want) * time.Millisecond; d.Abs() > off {
		t.Errorf("%s: the cluster's time is %v off, more than %v", what, d, off)
	}
}

// The host's clock is set an hour forward or back under a leader: time goes on, and is bent by less than 1 in 200.
func TestSetClockMovesNothing(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		h := &host{wall: noon, boot: time.Hour}
		c := h.clock()
		c.Lead(true)
		begin := c.Now()
		h.set(by)
		near(t, "at once", c.Now(), begin, 0)
		h.pass(c, time.Hour)
		near(t, "an hour later", c.Now(), begin.Add(3600), 18*time.Second)
		if miss := c.Miss(); (miss - by).Abs() > 19*time.Second {
			t.Errorf("%v: what is left to make up is %v", by, miss)
		}
		h.set(-by)
		h.pass(c, time.Hour)
		near(t, "set back", c.Now(), begin.Add(7200), 10*time.Millisecond)
	}
}

// A follower whose clock is an hour off takes over: no stamp differs from what the old leader would have written.
func TestTakeover(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour, 10 * time.Second} {
		h := &host{wall: noon + model.Time(by/time.Millisecond), boot: time.Hour}
		c := h.clock()
		c.Applied(noon - 60_000)
		c.Follow(noon)
		h.pass(c, 5*time.Minute)
		near(t, "before", c.Now(), noon.Add(300), 0)
		c.Lead(true)
		near(t, "as leader", c.Now(), noon.Add(300), 0)
		h.pass(c, time.Minute)
		near(t, "a minute later", c.Now(), noon.Add(360), 6*time.Second)
	}
}

// A daemon that starts anew on the same boot goes on by elapsed time, whatever the host's clock says now.
func TestRestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clock")
	h := &host{wall: noon, boot: time.Hour}
	c := h.clock()
	c.Lead(true)
	c.Now()
	if err := c.Save(file, "boot 1"); err != nil {
		t.Fatal(err)
	}
	h.boot += 2 * time.Hour // it is down
	h.set(time.Hour)        // and the clock is wrong then: it shows one hour less than has passed
	again := h.clock()
	if err := again.Load(file, "boot 1"); err != nil {
		t.Fatal(err)
	}
	again.Lead(true)
	near(t, "the same boot", again.Now(), noon.Add(7200), 10*time.Millisecond)
}

// After a reboot nobody knows how long it took: time stands until most clocks agree, and then steps.
func TestReboot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clock")
	h := &host{wall: noon, boot: time.Hour}
	c := h.clock()
	c.Lead(true)
	c.Now()
	if err := c.Save(file, "boot 1"); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		others []Offset
		want   model.Time // a second later
	}{
		"nobody is heard": {nil, noon.Add(1)},
		"nodes agree":     {[]Offset{{Name: "n1"}, {Name: "n2"}}, noon.Add(7200 + 1)},
		"this clock is wrong": {[]Offset{{Name: "n1", Ahead: -time.Hour}, {Name: "n2", Ahead: -time.Hour}},
			noon.Add(3600 + 1)},
		"one node, who's right": {[]Offset{{Name: "n1", Ahead: -time.Hour}}, noon.Add(1)},
	} {
		t.Run(name, func(t *testing.T) {
			h := &host{wall: noon.Add(7200), boot: time.Second}
			c := h.clock()
			if err := c.Load(file, "boot 2"); err != nil {
				t.Fatal(err)
			}
			c.Lead(true)
			h.pass(c, time.Second)
			c.Judge(Judge(tc.others))
			near(t, name, c.Now(), tc.want, time.Second)
			h.pass(c, patience)
			c.Now()
			if !c.known {
				t.Error("after a while it still waits for others")
			}
		})
	}
}

// While a leader does not know the time after a reboot, commands in the log push it on by nothing but elapsed time.
func TestCommandsPushNoTime(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clock")
	h := &host{wall: noon, boot: time.Hour}
	c := h.clock()
	c.Lead(true)
	c.Now()
	if err := c.Save(file, "boot 1"); err != nil {
		t.Fatal(err)
	}
	h = &host{wall: noon.Add(7200), boot: time.Second}
	c = h.clock()
	if err := c.Load(file, "boot 2"); err != nil {
		t.Fatal(err)
	}
	c.Lead(true)
	for range 100 {
		h.boot += 100 * time.Millisecond
		c.Applied(c.Now())
	}
	near(t, "10 s and 100 commands later", c.Now(), noon.Add(10), time.Second)
}

// A controller that begins without a disk on a host whose clock is wrong gets the others' log: the log counts, and not
// what the host's clock said before it came.
func TestLostDiskAndWrongClock(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		h := &host{wall: noon, boot: time.Hour}
		h.set(by)
		c := h.clock()
		c.Now() // another controller has asked for it
		for i := range 10 {
			c.Applied(noon.Add(int64(i)))
		}
		c.Lead(true)
		near(t, "as leader", c.Now(), noon.Add(9), time.Second)
	}
}

// A leader whose clock is wrong, and which has lost its file of the elapsed time, stamps by the log until it knows what
// most clocks show. If that is near, the time in the log does not jump to it (seed 7221 of faultsim).
func TestVerdictOfLeaderWithoutTime(t *testing.T) {
	h := &host{wall: noon, boot: time.Hour}
	h.set(-time.Hour)
	c := h.clock()
	c.Applied(noon)
	c.Lead(true)
	h.pass(c, 2*time.Second)
	near(t, "by the log", c.Now(), noon.Add(2), 10*time.Millisecond)
	const ahead = 10 * time.Second // of the log's time are the others' clocks
	c.Judge(Judge([]Offset{{Name: "ctl1", Controller: true, Ahead: time.Hour + ahead},
		{Name: "ctl2", Controller: true, Ahead: time.Hour + ahead}}))
	near(t, "as soon as it is known", c.Now(), noon.Add(2), 10*time.Millisecond)
	h.pass(c, 20*time.Second)
	near(t, "20 s later", c.Now(), noon.Add(22+2), 100*time.Millisecond) // a tenth more
	h.pass(c, 200*time.Second)
	near(t, "in the end", c.Now(), noon.Add(222+10), 10*time.Millisecond)
}

// What is in the log is never in the future of what follows.
func TestNeverBeforeTheLog(t *testing.T) {
	h := &host{wall: noon, boot: time.Hour}
	c := h.clock()
	c.Applied(noon.Add(50))
	if got := c.Now(); got < noon.Add(50) {
		t.Errorf("%v is before the last command", got)
	}
	c.Lead(true)
	last := c.Now()
	for i := range 100 {
		h.boot += time.Duration(i) * time.Millisecond
		h.set(time.Duration(50-i) * time.Second)
		if now := c.Now(); now < last {
			t.Fatalf("it went back by %d ms", last-now)
		} else {
			last = now
		}
	}
}

func TestJudge(t *testing.T) {
	ctl := func(name string, ahead time.Duration) Offset { return Offset{name, true, ahead} }
	node := func(name string, ahead time.Duration) Offset { return Offset{name, false, ahead} }
	for name, tc := range map[string]struct {
		others []Offset
		sure   bool
		self   bool
		off    time.Duration
		heirs  []string
		strays []string
	}{
		"alone": {sure: true},
		"three agree": {others: []Offset{ctl("b", time.Second), ctl("c", -2*time.Second)}, sure: true,
			heirs: []string{"b", "c"}},
		"another is off": {others: []Offset{ctl("b", time.Hour), ctl("c", 0)}, sure: true, heirs: []string{"c"},
			strays: []string{"b"}},
		"this one is off": {others: []Offset{ctl("b", -time.Hour), ctl("c", -time.Hour+time.Second)}, sure: true,
			self: true,
			off:  -time.Hour + time.Second, heirs: []string{"b", "c"}},
		"three controllers outvote nodes": {others: []Offset{ctl("b", 0), ctl("c", 0), node("1", time.Hour),
			node("2", time.Hour), node("3", time.Hour), node("4", time.Hour)}, sure: true, heirs: []string{"b", "c"}},
		"three that differ ask the nodes": {others: []Offset{ctl("b", time.Hour), ctl("c", 2*time.Hour),
			node("1", time.Hour), node("2", time.Hour)}, sure: true, self: true, off: time.Hour, heirs: []string{"b"},
			strays: []string{"c"}},
		"most nodes against one controller": {others: []Offset{node("1", time.Hour), node("2", time.Hour)}, sure: true,
			self: true, off: time.Hour},
		"one node against one controller":  {others: []Offset{node("1", time.Hour)}},
		"nodes that are wrong differently": {others: []Offset{node("1", time.Hour), node("2", -time.Hour)}},
	} {
		t.Run(name, func(t *testing.T) {
			v := Judge(tc.others)
			if v.Sure != tc.sure || v.Self != tc.self || v.Off != tc.off || !slices.Equal(v.Heirs, tc.heirs) ||
				!slices.Equal(v.Strays, tc.strays) {
				t.Errorf("%+v", v)
			}
		})
	}
}

// A damaged file is named, and the clock works without it.
func TestDamagedFile(t *testing.T) {
	h := &host{wall: noon, boot: time.Hour}
	c := h.clock()
	if err := c.Load(t.TempDir(), "boot"); err == nil {
		t.Error("a directory was read as the file")
	}
	near(t, "without a file", c.Now(), noon, 0)
}

// A host's clock is set after the last comparison with the others, and the controller begins to lead before the next:
// the cluster's time does not follow it, whether the controller knows elapsed time or only the log.
func TestClockSetSinceComparison(t *testing.T) {
	for name, follows := range map[string]bool{"it followed a leader": true, "it only has the log": false} {
		t.Run(name, func(t *testing.T) {
			h := &host{wall: noon, boot: time.Hour}
			c := h.clock()
			c.Applied(noon - 60_000)
			if follows {
				c.Follow(noon - 10_000)
			}
			h.boot, h.wall = h.boot+10*time.Second, noon // nobody asks it for the time
			c.Judge(Judge([]Offset{{Name: "2", Controller: true}}))
			h.set(time.Hour)
			c.Lead(true)
			near(t, "as leader", c.Now(), noon, 10*time.Millisecond)
			h.pass(c, time.Second)
			near(t, "a second later", c.Now(), noon.Add(1), 10*time.Millisecond)
		})
	}
}
