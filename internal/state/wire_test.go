package state

import (
	"testing"

	"gbatch/internal/wire/wiretest"
)

// TestWire: every struct and field has its line, and no bytes cost more than they may. A struct that no other one holds
// is named here.
func TestWire(t *testing.T) {
	wiretest.Package(t,
		&Certs{}, &Tokens{}, &Audits{}, &Crontab{}, &Triggers{},
		&Accounts{}, &Edit{}, &Join{}, &Lost{}, &Mailed{}, &NewEra{}, &NodeEdit{}, &NodeHealth{}, &Once{}, &Reports{},
		&Define{}, &Powers{}, &Reboots{}, &Reserve{}, &Resize{}, &ResvTold{},
		&SetConfig{}, &Starts{}, &Stop{}, &Submit{}, &SubmitHet{}, &Suspend{}, &Tick{}, &Trim{}, &Units{}, &Usage{},
		&snapEvent{},
		&snapAnswer{}, &snapHead{}, &snapMail{}, &snapRequest{}, &pack{})
}
