package fence

import (
	"fmt"
	"time"
)

// Sign is what came back from somebody who was asked.
type Sign uint8

const (
	Silent Sign = iota // nothing at all
	Alive              // its host refused, or something answered that is no answer
	Deaf               // it hears no leading controller
	Hears              // it hears one
)

// Answer is what came back from one of them.
type Answer struct {
	Who        string
	Controller bool
	Elsewhere  bool // its host is none of the controllers'
	Sign       Sign
	Leads      time.Duration // with hears: for how long that leader has heard nodes
}

// Verdict is what becomes of this node.
type Verdict struct {
	Cut bool
	At  time.Duration // with cut: not before, of the clock of shim.Uptime
	Why string
}

// Decide makes a verdict of the answers to what was asked at a moment.
func Decide(asked, limit time.Duration, answers []Answer) Verdict {
	var hearing, living *Answer
	elsewhere := 0
	for i := range answers {
		a := &answers[i]
		switch {
		case a.Sign == Hears && (hearing == nil || a.Leads < hearing.Leads):
			hearing = a // the youngest leader counts
		case a.Sign != Silent && living == nil:
			living = a
		case a.Sign == Silent && a.Elsewhere && !a.Controller:
			elsewhere++
		}
	}
	switch {
	case hearing != nil && hearing.Controller:
		return Verdict{true, max(asked-hearing.Leads+limit-Margin(limit), 0), hearing.Who +
			" leads and does not hear this node"}
	case hearing != nil:
		return Verdict{true, max(asked-hearing.Leads+limit-Margin(limit), 0), hearing.Who +
			" hears a controller, and this node does not"}
	case living != nil:
		return Verdict{Why: fmt.Sprintf("no controller that this node can reach leads; %s answers", living.Who)}
	case elsewhere > 0:
		return Verdict{Cut: true, Why: fmt.Sprintf("no controller and none of %d other nodes can be reached: "+
			"this node is isolated", elsewhere)}
	}
	return Verdict{Why: "no controller can be reached, and no other node can say why"}
}
