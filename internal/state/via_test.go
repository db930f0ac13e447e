package state

import (
	"slices"
	"strings"
	"testing"

	"gbatch/internal/model"
)

// TestWhatCameByARevokedHost: when a host's certificate is revoked, what users have set by way of it does nothing until
// they set it again or release it; what came otherwise, or by way of a host that nobody else had, stays as it is.
func TestWhatCameByARevokedHost(t *testing.T) {
	s := cronSession(t)
	lost := &model.Cert{Serial: "s2", Family: "s1", Role: "login", Name: "lg1", At: s.now - 1000, Until: s.now + 1e9}
	fine := &model.Cert{Serial: "s9", Family: "s9", Role: "login", Name: "lg2", At: s.now - 1000, Until: s.now + 1e9}
	submit := func(uid uint32, via *model.Cert) model.JobID {
		t.Helper()
		sub := entry(uid, 1, 0)
		sub.Spec.Cron, sub.Spec.Via = nil, via
		sub.Spec.Requeue = true
		res := s.apply(&sub)
		if res.Refusal != OK {
			t.Fatal(res.Refusal)
		}
		return res.Job
	}
	install := func(uid uint32, via *model.Cert) {
		t.Helper()
		if res := s.apply(&Crontab{UID: uid, By: uid, Text: []byte("x\ny\n"), Via: via,
			Jobs: []Submit{entry(uid, 1, s.now+1e6), entry(uid, 2, 0)}}); res.Refusal != OK {
			t.Fatal(res.Refusal)
		}
	}
	ids := func(uid uint32) (out []model.JobID) {
		for _, j := range s.st.crontabJobs(uid) {
			out = append(out, j.ID)
		}
		return out
	}
	install(7, lost)
	install(8, fine)
	install(9, nil)
	waits, runs := ids(7)[0], ids(7)[1]
	run := s.begin(runs)
	watch := model.Trigger{UID: 7, Of: model.TriggerNode, Events: model.OnDown, Via: lost, Perm: true}
	off := s.trig(watch)
	on := s.trig(model.Trigger{UID: 8, Of: model.TriggerNode, Events: model.OnDown, Via: fine, Perm: true})
	held, running, free, own := submit(7, lost), submit(7, lost), submit(8, fine), submit(9, nil)
	again := s.begin(running)
	changed := submit(7, nil) // on a controller, and changed by way of the host
	other := *s.st.View().Job(changed).Spec
	other.WorkDir, other.Via = "/elsewhere", lost
	s.apply(&Edit{Targets: []model.JobRef{{Job: changed, Task: model.NoTask}}, Set: []Field{SetSpec}, Spec: &other})

	revoke := func(r model.CertRevoked) {
		t.Helper()
		r.At, r.By = s.now, "root"
		if res := s.apply(&Certs{Op: CertRevoke, Revoked: []model.CertRevoked{r}}); res.Refusal != OK {
			t.Fatal(res.Refusal)
		}
	}
	revoke(model.CertRevoked{Role: "login", Name: "lg1", Keep: true})
	if by := s.st.View().CameBy(s.now); len(by.Crontabs)+len(by.Triggers)+len(by.Held)+len(by.Running) != 0 ||
		s.st.View().Job(held).Hold != model.NotHeld {
		t.Fatalf("a host that only went out of service: %+v", by)
	}
	s.now += 1000
	revoke(model.CertRevoked{Serial: "s1"})

	v := s.st.View()
	by := v.CameBy(s.now)
	if !slices.Equal(by.Crontabs, []uint32{7}) || !slices.Equal(by.Triggers, []uint32{off}) ||
		!slices.Equal(by.Held, []model.JobID{held, changed}) || !slices.Equal(by.Running, []model.JobID{running}) {
		t.Errorf("what came by way of it: %+v", by)
	}
	const word = "the certificate of login lg1, by way of which it was "
	if c := v.Crontab(7); !strings.HasPrefix(c.Why, word+"installed") || len(c.Off) != 2 {
		t.Errorf("the crontab: %+v", c)
	}
	if j := v.Job(waits); j.State != model.Cancelled || !strings.HasPrefix(j.Why, word) {
		t.Errorf("its job that waited is %s: %s", j.State, j.Why)
	}
	if j := s.end(run, model.Exit{}); !j.State.Finished() {
		t.Errorf("its job that ran comes back: %s", j.State)
	}
	for _, uid := range []uint32{8, 9} {
		if c := v.Crontab(uid); c.Why != "" || len(ids(uid)) != 2 {
			t.Errorf("the crontab of user %d: %+v", uid, c)
		}
	}
	s.apply(&NodeEdit{Nodes: []string{"n1"}, Admin: model.NodeDown, Reason: "x", By: "root"})
	s.apply(&NodeEdit{Nodes: []string{"n1"}, Admin: model.NodeUp, Reason: "x", By: "root"})
	if s.wantFired(off, "-"); s.fired(on) == "-" {
		t.Error("a trigger that came by way of another host does nothing")
	}
	for _, id := range []model.JobID{held, changed} {
		if j := v.Job(id); j.Hold != model.HeldByUser || !strings.HasPrefix(j.Why, word+"submitted or changed") {
			t.Errorf("job %d: held %d: %s", id, j.Hold, j.Why)
		}
	}
	for _, id := range []model.JobID{free, own} {
		if j := v.Job(id); j.Hold != model.NotHeld {
			t.Errorf("job %d is held", id)
		}
	}

	// A job that is put back waits for its user too. Who releases one has looked at it.
	s.apply(&Stop{Targets: []model.JobRef{{Job: running, Task: model.NoTask}}, Event: model.EvRequeue})
	back := s.end(again, model.Exit{Signal: 15})
	if back.State != model.Pending || back.Hold != model.HeldByUser || back.Why == "" {
		t.Errorf("a job that was put back: %s, held %d: %s", back.State, back.Hold, back.Why)
	}
	s.apply(&Edit{Targets: []model.JobRef{{Job: held, Task: model.NoTask}}, Set: []Field{SetHold, SetBegun},
		Hold: model.NotHeld})
	if j := s.st.View().Job(held); j.Hold != model.NotHeld || j.Why != "" || j.Spec.Via != nil {
		t.Errorf("released: held %d, %q, %+v", j.Hold, j.Why, j.Spec.Via)
	}
	watch.Via = nil
	if set := s.trig(watch); s.st.View().Trigger(off) != nil || s.st.View().Trigger(set) == nil {
		t.Error("the trigger is not set again in the place of the other one")
	}
	install(7, nil)
	if c := s.st.View().Crontab(7); c.Why != "" || len(ids(7)) != 2 {
		t.Errorf("the crontab that was installed again: %+v", c)
	}
	revoke(model.CertRevoked{Role: "login", Name: "lg1"})
	if by := s.st.View().CameBy(s.now); len(by.Crontabs)+len(by.Triggers) != 0 || slices.Contains(by.Held, held) {
		t.Errorf("what users have confirmed is stopped again: %+v", by)
	}
	s.replicas()
}
