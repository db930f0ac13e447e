package model

import "testing"

// A name with capitals, from older versions, is the same account.
func TestAccountsWhateverTheirCase(t *testing.T) {
	for _, r := range []Reservation{{Accounts: []string{"Team_A"}}, {Accounts: []string{"-Other", "-b"}}} {
		for _, name := range []string{"team_a", "Team_A"} {
			if !r.Admits(&Spec{Account: name}) {
				t.Errorf("Accounts=%v keeps %s out", r.Accounts, name)
			}
		}
		if r.Admits(&Spec{Account: "other"}) {
			t.Errorf("Accounts=%v lets other in", r.Accounts)
		}
	}
	if got := AccountName("Team_A"); got != "team_a" {
		t.Errorf("Team_A is spelled %s", got)
	}
}
