package resv

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// resvCluster is a state with nodes n1 to n4 in partition p and n5 in q, all of which are up at testNow.
func resvCluster(t *testing.T) *state.State {
	t.Helper()
	st := state.New()
	cfg := &model.Config{Cluster: "c"}
	for _, name := range []string{"n1", "n2", "n3", "n4", "n5"} {
		cfg.Nodes = append(cfg.Nodes,
			&model.NodeDef{Name: name, CPUs: 4, ThreadsPerCore: 1, MemMiB: 4000, Gres: []model.GresDef{{Name: "gpu", Count: 2}}})
	}
	cfg.Partitions = []*model.Partition{{Name: "p", Nodes: []string{"n1", "n2", "n3", "n4"}},
		{Name: "q", Nodes: []string{"n5"}}}
	st.Apply(state.Command{At: testNow, Body: &state.SetConfig{Config: cfg, Instance: 1}})
	for _, d := range cfg.Nodes {
		st.Apply(state.Command{At: testNow, Body: &state.Join{Node: d.Name, BootID: "b"}})
	}
	return st
}

const testNow model.Time = 1_780_000_000_000

func testFacts(st *state.State) Facts { return Facts{View: st.View(), Now: testNow, Zone: time.UTC} }

// occupy runs a job on a node.
func occupy(t *testing.T, st *state.State, node string) {
	t.Helper()
	id := st.Apply(state.Command{At: testNow,
		Body: &state.Submit{Spec: &model.Spec{Name: "j", Partitions: []string{"p"}}}}).Job
	alloc := &model.Alloc{Nodes: []model.NodeAlloc{{Node: node, CPUs: model.UpTo(1), Tasks: 1}}}
	res := st.Apply(state.Command{At: testNow,
		Body: &state.Starts{
			Plan: model.Plan{Starts: []model.Start{{Job: id, Task: model.NoTask, Partition: "p", LimitS: 60, Alloc: alloc}}}}})
	if len(res.Each) != 1 || res.Each[0] != state.OK {
		t.Fatalf("no job starts on %s: %v", node, res.Each)
	}
}

// Nodes that are down are replaced by idle ones of the same pool; with REPLACE also nodes in use. If there are no idle
// nodes, or with STATIC_ALLOC, the reservation keeps its nodes.
func TestReservationReplaces(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags model.ResvFlags
		count int32
		down  []string
		busy  []string
		taken []string // by another reservation
		want  string   // "": it stays
	}{
		{"nothing is wrong", model.ResvReplaceDown, 0, nil, nil, nil, ""},
		{"REPLACE_DOWN", model.ResvReplaceDown, 0, []string{"n1"}, nil, nil, "n2,n3"},
		{"REPLACE_DOWN leaves nodes in use", model.ResvReplaceDown, 0, nil, []string{"n1"}, nil, ""},
		{"REPLACE", model.ResvReplace, 0, nil, []string{"n1"}, nil, "n2,n3"},
		{"REPLACE both", model.ResvReplace, 0, []string{"n1"}, []string{"n2"}, nil, "n3,n4"},
		{"not by nodes that are in use", model.ResvReplace, 0, []string{"n1"}, []string{"n3"}, nil, "n2,n4"},
		{"nor by another's", model.ResvReplaceDown, 0, []string{"n1"}, nil, []string{"n3"}, "n2,n4"},
		{"nobody is left", model.ResvReplaceDown, 0, []string{"n1", "n3", "n4"}, nil, nil, ""},
		{"named nodes stay without a flag", 0, 0, []string{"n1"}, nil, nil, ""},
		{"a number of nodes does not", 0, 2, []string{"n1"}, nil, nil, "n2,n3"},
		{"unless STATIC_ALLOC", model.ResvStatic, 2, []string{"n1"}, nil, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := resvCluster(t)
			r := &model.Reservation{Name: "r", Start: testNow, End: testNow.Add(3600), Nodes: []string{"n1", "n2"},
				Partition: "p", Users: []string{"u"}, Flags: c.flags, Count: c.count}
			make := func(r *model.Reservation) {
				if res := st.Apply(state.Command{At: testNow,
					Body: &state.Reserve{Op: state.CreateResv, Resv: r}}); res.Refusal != state.OK {
					t.Fatal(res.Refusal)
				}
			}
			make(r)
			if len(c.taken) > 0 {
				make(&model.Reservation{Name: "other", Start: testNow, End: testNow.Add(3600), Nodes: c.taken,
					Users: []string{"v"}})
			}
			for _, n := range c.busy {
				occupy(t, st, n)
			}
			if len(c.down) > 0 {
				st.Apply(state.Command{At: testNow, Body: &state.Lost{Nodes: c.down}})
			}
			v := st.View()
			got := ""
			if n := Kept(testFacts(st), v.Reservation("r")); n != nil {
				got = strings.Join(n.Nodes, ",")
			}
			if got != c.want {
				t.Errorf("it gets %q, want %q", got, c.want)
			}
		})
	}
}

// PART_NODES: the reservation always has all nodes of its partition.
func TestReservationOfPartition(t *testing.T) {
	st := resvCluster(t)
	r := &model.Reservation{Name: "r", Start: testNow, End: testNow.Add(3600), Nodes: []string{"n1", "n2", "n3", "n4"},
		Partition: "p", Users: []string{"u"}, Flags: model.ResvPartNodes}
	if res := st.Apply(state.Command{At: testNow,
		Body: &state.Reserve{Op: state.CreateResv, Resv: r}}); res.Refusal != state.OK {
		t.Fatal(res.Refusal)
	}
	if n := Kept(testFacts(st), st.View().Reservation("r")); n != nil {
		t.Errorf("it changes although the partition has not: %v", n.Nodes)
	}
	for _, nodes := range [][]string{{"n4", "n1"}, {"n5", "n1", "n2", "n3", "n4"}} {
		cfg := *st.View().Config()
		part := *cfg.Partitions[0]
		part.Nodes = nodes
		cfg.Partitions = []*model.Partition{&part, cfg.Partitions[1]}
		st.Apply(state.Command{At: testNow, Body: &state.SetConfig{Config: &cfg}})
		n := Kept(testFacts(st), st.View().Reservation("r"))
		if want := slices.Sorted(slices.Values(nodes)); n == nil || !slices.Equal(n.Nodes, want) {
			t.Fatalf("the partition has %v, the reservation becomes %+v", want, n)
		}
		if res := st.Apply(state.Command{At: testNow,
			Body: &state.Reserve{Op: state.KeepResv, Resv: n}}); res.Refusal != state.OK {
			t.Fatal(res.Refusal)
		}
	}
}

// Groups= admits by the job's own group and by the user's others; accounts have to fit as well.
func TestReservationOfGroups(t *testing.T) {
	f := Facts{Group: func(name string) (uint32, error) {
		if name != "staff" {
			return 0, errors.New("no such group")
		}
		return 50, nil
	}}
	gids, err := f.groupIDs([]string{"staff"})
	if err != nil || !slices.Equal(gids, []uint32{50}) {
		t.Fatalf("%v, %v", gids, err)
	}
	if _, err := f.groupIDs([]string{"-staff"}); err == nil || !strings.Contains(err.Error(), "groups can't be denied") {
		t.Errorf("a denied group: %v", err)
	}
	if _, err := f.groupIDs([]string{"other"}); err == nil ||
		!strings.Contains(err.Error(), "Groups=other: no such group") {
		t.Errorf("an unknown group: %v", err)
	}
	r := &model.Reservation{Groups: []string{"staff"}, GIDs: gids}
	for _, c := range []struct {
		accounts []string
		sp       model.Spec
		want     bool
	}{
		{nil, model.Spec{User: "u", GID: gids[0]}, true},
		{nil, model.Spec{User: "u", GID: gids[0] + 1}, false},
		{nil, model.Spec{User: "u", GID: gids[0] + 1, Groups: []uint32{7, gids[0]}}, true},
		{[]string{"a"}, model.Spec{User: "u", GID: gids[0], Account: "b"}, false},
		{[]string{"a"}, model.Spec{User: "u", GID: gids[0], Account: "a"}, true},
		{[]string{"-a"}, model.Spec{User: "u", GID: gids[0], Account: "a"}, false},
		{[]string{"-a"}, model.Spec{User: "u", GID: gids[0], Account: "b"}, true},
	} {
		if r.Accounts = c.accounts; r.Admits(&c.sp) != c.want {
			t.Errorf("accounts %v: job %+v is admitted: %v", c.accounts, c.sp, !c.want)
		}
	}
}

// Repeating reservations keep their time of day when daylight saving begins and ends.
func TestReservationCalendar(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip("no time zones here")
	}
	at := func(text string) model.Time {
		when, err := time.ParseInLocation("2006-01-02 15:04", text, zone)
		if err != nil {
			t.Fatal(err)
		}
		return model.Time(when.UnixMilli())
	}
	for _, c := range []struct {
		name  string
		flags model.ResvFlags
		start string
		first string // "": start
		want  []string
	}{
		{"daily into summer", model.ResvDaily, "2026-03-27 09:00", "",
			[]string{"2026-03-28 09:00", "2026-03-29 09:00", "2026-03-30 09:00"}},
		{"daily into winter", model.ResvDaily, "2026-10-24 09:00", "", []string{"2026-10-25 09:00", "2026-10-26 09:00"}},
		{"the hour that there is not", model.ResvDaily, "2026-03-28 02:30", "",
			[]string{"2026-03-29 03:30", "2026-03-30 02:30"}},
		{"from a time that was moved", model.ResvDaily, "2026-03-29 03:30", "2026-03-01 02:30",
			[]string{"2026-03-30 02:30", "2026-03-31 02:30"}},
		{"the hour that there is twice", model.ResvDaily, "2026-10-24 02:30", "",
			[]string{"2026-10-25 02:30", "2026-10-26 02:30"}},
		{"weekly", model.ResvWeekly, "2026-03-25 18:00", "", []string{"2026-04-01 18:00", "2026-04-08 18:00"}},
		{"weekdays", model.ResvWeekday, "2026-03-26 08:00", "",
			[]string{"2026-03-27 08:00", "2026-03-30 08:00", "2026-03-31 08:00"}},
		{"weekends", model.ResvWeekend, "2026-03-28 08:00", "",
			[]string{"2026-03-29 08:00", "2026-04-04 08:00", "2026-04-05 08:00"}},
		{"hourly needs none", model.ResvHourly, "2026-03-28 08:00", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &model.Reservation{Start: at(c.start), First: at(c.start), Flags: c.flags}
			if c.first != "" {
				r.First = at(c.first)
			}
			r.End = r.Start.Add(1800)
			later := laterOf(r, zone)
			if c.want == nil {
				if later != nil {
					t.Errorf("it repeats at %v", later)
				}
				return
			}
			if len(later) != model.MaxOccurrences-1 {
				t.Fatalf("%d times ahead, want %d", len(later), model.MaxOccurrences-1)
			}
			for i, want := range c.want {
				if got := time.UnixMilli(int64(later[i])).In(zone).Format("2006-01-02 15:04"); got != want {
					t.Errorf("time %d is %s, want %s", i+1, got, want)
				}
			}
			for i, o := range append([]model.Time{r.Start}, later...)[:len(later)] {
				if later[i] <= o {
					t.Errorf("time %d is not after the one before", i+1)
				}
			}
		})
	}
}

// Create makes a reservation from settings, names it, and chooses free nodes; Update changes a copy.
func TestCreateAndUpdate(t *testing.T) {
	st := resvCluster(t)
	occupy(t, st, "n1")
	start := strconv.FormatInt(int64(testNow.Add(30)), 10) // the job on n1 may run for a minute
	words := func(more ...string) (set []model.KV) {
		for _, w := range append([]string{"StartTime=@" + start, "Duration=60", "Users=u"}, more...) {
			key, value, _ := strings.Cut(w, "=")
			set = append(set, model.KV{Key: key, Value: value})
		}
		return set
	}
	r, err := Create(testFacts(st), "", words("NodeCnt=2", "PartitionName=p"))
	if err != nil || r.Name != "u_1" || !slices.Equal(r.Nodes, []string{"n2", "n3"}) || r.End != r.Start.Add(3600) {
		t.Fatalf("%+v, %v", r, err)
	}
	longer, err := Update(testFacts(st), r, []model.KV{{Key: "Duration", Value: "90"}})
	if err != nil || longer.End != r.Start.Add(5400) || r.End != r.Start.Add(3600) ||
		!slices.Equal(longer.Nodes, r.Nodes) {
		t.Errorf("%+v, %v", longer, err)
	}
	for _, keys := range [][2]model.KV{{{Key: "MaxStartDelay", Value: "5"}, {Key: "Flags+", Value: "MAGNETIC"}},
		{{Key: "Flags+", Value: "MAGNETIC"}, {Key: "MaxStartDelay", Value: "5"}}} {
		one, err := Update(testFacts(st), r, keys[:1])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Update(testFacts(st), one, keys[1:]); err == nil {
			t.Errorf("%v is taken", keys)
		}
	}
	for _, c := range []struct {
		set  []model.KV
		code proto.Code
		text string
	}{
		{words("NodeCnt=4", "PartitionName=p"), proto.CodeNodesBusy,
			"Requested nodes are busy: 3 of 4 nodes are free from then on"},
		{words("NodeCnt=2k,2k", "PartitionName=p"), proto.CodeNodesBusy,
			"Requested nodes are busy: 3 of 4096 nodes are free from then on"},
		{words("NodeCnt=1,x"), proto.CodeNodeCount, "NodeCnt=1,x: write the number of nodes"},
		{words("Nodes=n9"), proto.CodeInvalidNode, "Invalid node name specified: n9"},
		{words("Licenses=matlab:1", "Flags=ANY_NODES"), proto.CodeReservation, "the cluster has no licenses"},
		{words("Licenses=a|b", "Flags=ANY_NODES"), proto.CodeReservation, "a reservation takes all of them"},
		{words("Licenses=a,a", "Flags=ANY_NODES"), proto.CodeReservation, "a stands twice"},
		{words("TRES=license/Matlab=1"), proto.CodeReservation, "Matlab:1; the cluster has no licenses"},
		{words("TRES=cpu=2,2"), proto.CodeReservation, "give cores of each node with CoreCnt="},
		{words("TRES=gres/gpu=0.5%"), proto.CodeReservation, "a percentage, 1% to 100%"},
		{words("TRES=colour=1"), proto.CodeReservation, "write cpu=N, node=N"},
		{words("Nodes=n3", "MaxStartDelay=5", "Flags=MAGNETIC"), proto.CodeReservation, "exclude each other"},
		{words("Colour=red"), proto.CodeReservation, "Colour is not a key of reservations"},
	} {
		_, err := Create(testFacts(st), "r", c.set)
		var no *Refusal
		if !errors.As(err, &no) || no.Code != c.code || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%v: %v", c.set, err)
		}
	}
}
