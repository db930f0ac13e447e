package model

import (
	"testing"

	"gbatch/internal/wire/wiretest"
)

// TestWire: every struct and field has its line, and no bytes cost more than they may. A struct that no other one holds
// is named here.
func TestWire(t *testing.T) {
	wiretest.Package(t,
		&AskRules{}, &Account{}, &Cert{}, &CertRevoked{}, &TokenRevoked{},
		&CertToken{}, &Association{}, &Blob{}, &Config{}, &Crontab{}, &Trigger{}, &Daemons{}, &Era{},
		&Explanation{}, &Job{}, &Node{}, &Plan{},
		&AcctEdit{}, &GresUnit{}, &JobRef{}, &QOS{}, &Range{}, &Record{}, &Reservation{}, &ResvTurn{},
		&TRESCount{}, &Turn{}, &UnitTell{}, &User{}, &WCKey{})
}
