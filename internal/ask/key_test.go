package ask

import (
	"reflect"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// ofNoMatter are the fields of model.Spec, and below it, that change nothing of what nodes have to give.
var ofNoMatter = map[string]string{
	"Name": "a name", "GID": "who it runs as", "Groups": "who it runs as", "User": "a name; UID counts", "Group": "a name",
	"Account": "limits look at it, not nodes", "QOS": "the planner adds what of it counts",
	"Partitions": "a lane has shapes of its own",
	"Comment":    "for people", "WCKey": "usage counts for it",
	"Script": "runs on whatever nodes", "Env": "runs on whatever nodes",
	"Args":    "runs on whatever nodes",
	"Command": "for people", "Submit": "for people", "WorkDir": "a path", "StdIn": "a path", "StdOut": "a path",
	"StdErr":         "a path",
	"More.Elastic":   "one of its least number of nodes waits and starts as any other of that size",
	"More.Container": "runs on whatever nodes",
	"More.Expedite":  "what it has of its nodes is a claim",
	"More.KeepOnDep": "decides when it ends",
	"More.Stated":    "decides nothing",
	"Limits":         "of processes", "OwnLimits": "of processes", "Host": "for people", "SID": "for people",
	"From": "decides whether it is taken", "Via": "decides whether it waits for its user",
	"LimitS": "a shape holds for every length of time", "Nice": "order only", "PrioReq": "order only",
	"Begin": "decides when it is looked at", "Cron": "decides when it is looked at",
	"Deadline": "decides when it is looked at", "DepText": "for people", "Deps": "decide when it is looked at",
	"ArrayText": "for people",
	"Tasklist":  "each task is a job of the same shape", "Throttle": "decides when a task is looked at",
	"Umask": "of processes", "Append": "of its output", "OwnMode": "of its output",
	"HoldReq":   "decides whether it is looked at",
	"Requeue":   "after its end",
	"NoRequeue": "after its end", "KillOnDep": "decides when it ends", "DepAny": "decides when it is looked at",
	"Warning": "before its end, unless the job gives way (TestKeyOfNotice)",

	"More.SwitchWaitS": "each job has a moment of its own, the shape both forms",
	"More.TimeMinS":    "a shape holds for every length of time",
	"More.SampleS":     "measured on whatever nodes", "More.Bind": "inside what the job has (but TestKeyOfSockets)",
	"More.Interactive": "its script only waits",
	"More.Attended":    "decides when it ends", "More.NoKill": "decides when it ends",
	"More.Mail": "for people", "More.NoPreempt": "decides who is preempted",
	"More.GresToo":            "says the same as Gres",
	"More.NeverIdle":          "while it runs",
	"More.OOMKill":            "while it runs",
	"More.OOMRequeue":         "after its end",
	"More.GPUMemAuto":         "says where GPUMemMiB is from",
	"More.GPUsPerSocket.Name": "always gpu", "More.GPUsPerSocket.Per": "has no meaning",
	"More.GPUsPerSocket.Milli": "refused: GPUs go whole",
}

// TestKey: every field of a Spec changes the key, or stands on the list of those that don't matter.
func TestKey(t *testing.T) {
	seen := map[string]bool{}
	base := func() *model.Spec {
		return &model.Spec{Gres: make([]model.GresReq, 1),
			More: &model.Needs{Licenses: make([]model.LicenseCount, 1), GPUsPerSocket: make([]model.GresReq, 1)}}
	}
	plain := string(Key(nil, base(), true))
	try := func(path string, change func(sp *model.Spec)) {
		seen[path] = true
		sp := base()
		change(sp)
		changed := string(Key(nil, sp, true)) != plain
		switch why, listed := ofNoMatter[path]; {
		case changed && listed:
			t.Errorf("%s changes the key, though it is listed as %q", path, why)
		case !changed && !listed:
			t.Errorf("%s does not change the key: add it there, or to ofNoMatter with the reason", path)
		}
	}
	var walk func(path string, typ reflect.Type, at func(sp *model.Spec) reflect.Value)
	walk = func(path string, typ reflect.Type, at func(sp *model.Spec) reflect.Value) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			name := strings.TrimPrefix(path+"."+f.Name, ".")
			field := func(sp *model.Spec) reflect.Value { return at(sp).Field(i) }
			switch {
			case name == "More":
				walk(name, f.Type.Elem(), func(sp *model.Spec) reflect.Value { return field(sp).Elem() })
				continue
			case name == "Gres", name == "More.Licenses", name == "More.GPUsPerSocket":
				walk(name, f.Type.Elem(), func(sp *model.Spec) reflect.Value { return field(sp).Index(0) })
			}
			try(name, func(sp *model.Spec) { fill(t, name, field(sp)) })
		}
	}
	walk("", reflect.TypeFor[model.Spec](), func(sp *model.Spec) reflect.Value { return reflect.ValueOf(sp).Elem() })
	for path := range ofNoMatter {
		if !seen[path] {
			t.Errorf("%s is listed, and no field", path)
		}
	}
}

// fill sets a value to another one than base has.
func fill(t *testing.T, name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Slice: // one entry more
		v.Set(reflect.Append(v, reflect.New(v.Type().Elem()).Elem()))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
	default:
		t.Fatalf("%s is a %s: say here how to set one", name, v.Kind())
	}
}

// TestKeyOfNotice: jobs that give way differ from others, and by their notice.
func TestKeyOfNotice(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range []*model.Warning{{Signal: 10, BeforeS: 60}, {BeforeS: 60, Yields: true},
		{BeforeS: 0, Yields: true}} {
		seen[string(Key(nil, &model.Spec{Warning: w}, false))] = true
	}
	if len(seen) != 3 {
		t.Errorf("%d keys of three kinds of jobs", len(seen))
	}
}

// TestKeyOfSockets: how cores are chosen among sockets counts, however it is written.
func TestKeyOfSockets(t *testing.T) {
	key := func(dist string) string {
		return string(Key(nil, &model.Spec{More: &model.Needs{Bind: &model.BindWish{Dist: dist}}}, false))
	}
	for _, same := range [][]string{{"", "block", "cyclic", "*:*", "arbitrary", "pack", "cyclic:*:block"},
		{"block:block", "*:block:cyclic", "cyclic:block,pack", "plane=2"}, {"block:cyclic", "*:fcyclic", "cyclic:cyclic"}} {
		for _, dist := range same {
			if key(dist) != key(same[0]) {
				t.Errorf("%q and %q are different needs", dist, same[0])
			}
		}
	}
	if key("") == key("*:block") || key("") == key("*:cyclic") || key("*:block") == key("*:cyclic") {
		t.Error("block, cyclic and nothing are not told apart")
	}
}

// TestKeyOfUser: whose job it is counts only where it may.
func TestKeyOfUser(t *testing.T) {
	a, b := &model.Spec{UID: 1}, &model.Spec{UID: 2}
	if string(Key(nil, a, false)) != string(Key(nil, b, false)) {
		t.Error("the user counts though nobody asked")
	}
	a.More, b.More = &model.Needs{ExclusiveUser: true}, &model.Needs{ExclusiveUser: true}
	if string(Key(nil, a, false)) == string(Key(nil, b, false)) {
		t.Error("--exclusive=user is the same for two users")
	}
}
