package clock

import (
	"slices"
	"time"
)

// Offset is how far one host's clock is ahead of this host's.
type Offset struct {
	Name       string
	Controller bool // or a node
	Ahead      time.Duration
}

// Verdict is what the hosts' clocks say together.
type Verdict struct {
	Sure   bool          // a majority agrees
	Self   bool          // this host's clock is outside of the majority
	Off    time.Duration // what has to be added to this host's clock
	Agree  int           // clocks in the majority
	Of     int           // clocks that are known, this host's included
	Strays []string      // controllers outside of the majority, but for this one
	Heirs  []string      // controllers within, but for this one
}

// Judge finds the majority of this host's clock and the others'. Where three controllers or more are known, they
// decide: they are few, and looked after. Otherwise each controller and each node has a vote. Clocks agree if they are
// within Near of each other.
func Judge(others []Offset) Verdict {
	var all, ctls []Offset
	self := Offset{Controller: true}
	all, ctls = append(all, self), append(ctls, self)
	for _, o := range others {
		all = append(all, o)
		if o.Controller {
			ctls = append(ctls, o)
		}
	}
	if len(ctls) >= 3 {
		if v := majority(ctls); v.Sure {
			return v
		}
	}
	return majority(all)
}

// majority finds the largest group of clocks that agree, and whether it has more than half of them.
func majority(list []Offset) Verdict {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Offset) int { return int(max(-1, min(1, a.Ahead-b.Ahead))) })
	from, to := 0, 0 // the largest window of at most Near
	for i, j := 0, 0; j < len(list); j++ {
		for list[j].Ahead-list[i].Ahead > Near {
			i++
		}
		if j+1-i > to-from {
			from, to = i, j+1
		}
	}
	v := Verdict{Agree: to - from, Of: len(list)}
	if v.Sure = 2*v.Agree > v.Of; !v.Sure {
		return v
	}
	low, high := list[from].Ahead, list[to-1].Ahead
	v.Self = low > 0 || high < 0
	if v.Self {
		v.Off = list[from+v.Agree/2].Ahead
	}
	for _, o := range list {
		within := o.Ahead >= low && o.Ahead <= high
		switch {
		case o.Name == "" || !o.Controller:
		case within:
			v.Heirs = append(v.Heirs, o.Name)
		default:
			v.Strays = append(v.Strays, o.Name)
		}
	}
	slices.Sort(v.Heirs)
	slices.Sort(v.Strays)
	return v
}
