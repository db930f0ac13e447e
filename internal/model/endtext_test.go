package model

import "testing"

// Every final state except COMPLETED has a sentence, whatever the reason.
func TestEndText(t *testing.T) {
	for s := Completed; s < numJobStates; s++ {
		for r := range numReasons {
			rec := &Record{State: s, Reason: r, End: 5, LimitS: 90}
			if got := rec.EndText(); (got == "") != (s == Completed) {
				t.Errorf("%s, %s: %q", s, r, got)
			}
			j := &Job{State: s, Reason: r, Spec: &Spec{}, End: &End{At: 5}, Why: "the disk burns"}
			if got := j.EndText(); got != j.Why {
				t.Errorf("%s, %s: %q", s, r, got)
			}
		}
	}
	if got := (&Job{State: Running, Spec: &Spec{}}).EndText(); got != "" {
		t.Errorf("running: %q", got)
	}
	for s, want := range map[int64]string{90: "00:01:30", 18000: "05:00:00", 90000: "1-01:00:00", Unlimited: "UNLIMITED"} {
		if got := clock(s); got != want {
			t.Errorf("%d: %q, want %q", s, got, want)
		}
	}
}
