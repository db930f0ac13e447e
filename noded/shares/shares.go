// Package shares divides what gnoded has little of among those who connect to it: descriptors, and
// memory for messages about steps. Half of the descriptors are the daemon's own, whatever others
// do: for launches, the spool, the sampler's files, and the connections to gshim and the leader.
package shares

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"gbatch/internal/budget"
)

// The most of each, where the limit of open files allows it.
const (
	stepConns    = 1024      // commands connected at once
	localConns   = 2048      // the same on the socket for requests
	peerConns    = 4096      // connections of other nodes' daemons
	stepFiles    = 16384     // open files of steps that have not all begun
	stepBytes    = 256 << 20 // memory of requests, and of events that wait to be read
	stepBytesOne = 96 << 20  // a user's part of it: a request of MaxStepFrame is decoded to at most eight times that
	leastShare   = 16
)

// Owner is who pays: a user of this host, or another host's daemon, for its user UID or itself.
type Owner struct {
	UID  uint32
	Host string // "": this one
}

// String is for logs.
func (o Owner) String() string {
	if o.Host == "" {
		return fmt.Sprintf("uid %d", o.UID)
	}
	return "host " + o.Host
}

// rootHere: root's commands on this host are bound by what there is.
func rootHere(o Owner) bool { return o == Owner{} }

// Shares are the budgets.
type Shares struct {
	Local  int // connections of the socket for requests
	Conns  *budget.Budget[Owner]
	Peers  *budget.Budget[string]
	Files  *budget.Budget[Owner]
	Memory *budget.Budget[Owner]
}

// New divides up a number of descriptors.
func New(descriptors int64) *Shares {
	others := descriptors / 2
	part := func(most, of int64) int64 { return max(min(most, others/of), leastShare) }
	conns, peers, files := part(stepConns, 8), part(peerConns, 4), part(stepFiles, 4)
	return &Shares{Local: int(part(localConns, 4)),
		Conns:  budget.New(conns, conns/2, rootHere),
		Peers:  budget.New[string](peers, peers/2, nil),
		Files:  budget.New(files, files/2, rootHere),
		Memory: budget.New(stepBytes, stepBytesOne, rootHere)}
}

// Descriptors is how many open files this process may have.
func Descriptors() int64 {
	const unlimited = 1 << 20
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil || r.Cur > unlimited {
		return unlimited
	}
	return int64(r.Cur)
}

// Busy is what somebody is told who gets nothing more of a budget.
type Busy struct{ text string }

// Error is a sentence for users.
func (e *Busy) Error() string { return e.text }

// BusyText makes the sentence for an error of a budget; what is the plural of what it is about.
func BusyText(err error, what string) error {
	var over *budget.Over
	if errors.As(err, &over) && over.Own {
		return &Busy{fmt.Sprintf("this node's gnoded is busy: you have %d %s there, and one user may have %d; try "+
			"again in a moment", over.Has, what, over.Limit)}
	}
	return &Busy{fmt.Sprintf("this node's gnoded is busy: almost all of its %s are in use; try again in a moment",
		what)}
}
