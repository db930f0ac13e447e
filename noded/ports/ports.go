package ports

import (
	"errors"
	"fmt"

	"gbatch/internal/model"
)

// Range has the first and the last port of MpiParams; zero: there are none.
type Range [2]int32

// ErrHeld says that there are enough ports, but other steps hold them.
var ErrHeld = errors.New("other steps hold the ports of MpiParams")

// MaxPorts bounds the ports of one step.
const MaxPorts = 4096

// Choose gives n ports, as in 12000-12003, that no set of held has, the first one at or behind the place from.
func Choose(r Range, n int, held []model.TaskSet, from int32) (string, error) {
	count := r[1] - r[0] + 1
	switch {
	case r == Range{}:
		return "", errors.New("--resv-ports needs MpiParams=ports=FIRST-LAST in gbatch.conf, and it is not set: leave the " +
			"option out, MPI programs find free ports by themselves")
	case n > int(count) || n > MaxPorts:
		return "", fmt.Errorf("--resv-ports: %d ports, and MpiParams has %d", n, min(count, MaxPorts))
	}
	mine := make([]bool, count)
	got := 0
	for i := int32(0); i < count && got < n; i++ {
		at := (from + i) % count
		if holds(held, r[0]+at) {
			continue
		}
		mine[at] = true
		got++
	}
	if got < n {
		return "", ErrHeld
	}
	var set model.TaskSet
	for i, is := range mine {
		port := r[0] + int32(i)
		if last := len(set) - 1; is && last >= 0 && set[last].Hi == port-1 {
			set[last].Hi = port
		} else if is {
			set = append(set, model.Range{Lo: port, Hi: port, Step: 1})
		}
	}
	return set.String(), nil
}

func holds(held []model.TaskSet, port int32) bool {
	for _, s := range held {
		if s.Has(port) {
			return true
		}
	}
	return false
}

// Parse reads the result of Choose.
func Parse(text string) (model.TaskSet, error) {
	set, _, err := model.ParseTaskSet(text, 1<<16)
	return set, err
}

// Clash gives a port of mine that is held; 0: there is none.
func Clash(mine model.TaskSet, held []model.TaskSet) (port int32) {
	mine.Each(func(p int32) bool {
		if holds(held, p) {
			port = p
		}
		return port == 0
	})
	return port
}
