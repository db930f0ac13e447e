package fence

import (
	"fmt"
	"time"
)

// sign is what came back from somebody who was asked.
type sign uint8

const (
	silent sign = iota // nothing at all
	alive              // its host refused, or something answered that is no answer
	deaf               // it hears no leading controller
	hears              // it hears one
)

// answer is one of them.
type answer struct {
	who        string
	controller bool
	elsewhere  bool // its host is none of the controllers'
	sign       sign
	leads      time.Duration // with hears: for how long that leader has heard nodes
}

// verdict is what becomes of this node.
type verdict struct {
	cut bool
	at  time.Duration // with cut: not before, of the clock of shim.Uptime
	why string
}

// decide makes a verdict of the answers to what was asked at a moment.
func decide(asked, limit time.Duration, answers []answer) verdict {
	var hearing, living *answer
	elsewhere := 0
	for i := range answers {
		a := &answers[i]
		switch {
		case a.sign == hears && (hearing == nil || a.leads < hearing.leads):
			hearing = a // the youngest leader counts
		case a.sign != silent && living == nil:
			living = a
		case a.sign == silent && a.elsewhere && !a.controller:
			elsewhere++
		}
	}
	switch {
	case hearing != nil && hearing.controller:
		return verdict{true, max(asked-hearing.leads+limit-margin(limit), 0), hearing.who +
			" leads and does not hear this node"}
	case hearing != nil:
		return verdict{true, max(asked-hearing.leads+limit-margin(limit), 0), hearing.who +
			" hears a controller, and this node does not"}
	case living != nil:
		return verdict{why: fmt.Sprintf("no controller that this node can reach leads; %s answers", living.who)}
	case elsewhere > 0:
		return verdict{cut: true, why: fmt.Sprintf("no controller and none of %d other nodes can be reached: "+
			"this node is isolated", elsewhere)}
	}
	return verdict{why: "no controller can be reached, and no other node can say why"}
}
