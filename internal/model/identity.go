package model

import (
	"fmt"
	"slices"
)

// identity.go has what can be said of a job's user without a user database. Every process between a command and a
// job's first instruction asks it again: the controller, the state, gnoded and gshim.

// NoID is (uid_t)-1: no user and no group has it. To setresuid(2) it means "leave it as it is".
const NoID = ^uint32(0)

// Origin says who has said whose job it is. The numbers are stored: append only.
type Origin uint8

// The origins.
const (
	FromBefore     Origin = iota // a job of a version that did not note it
	FromHost                     // gnoded of a login host or node; the leader has looked the user up
	FromController               // the kernel of a controller's host
)

// Rights are what a user may do beside what is their own. The numbers are stored: append only.
type Rights uint8

// The rights, each of which has those before it.
const (
	RightsUser Rights = iota
	RightsCoordinator
	RightsOperator
	RightsAdministrator
)

// RightsNames are the words of LoginRights, in order.
var RightsNames = []string{"user", "coordinator", "operator", "administrator"}

func (r Rights) String() string {
	if int(r) >= len(RightsNames) {
		return "unknown"
	}
	return RightsNames[r]
}

// CheckIDs refuses ids that no process may get: NoID ever, and root's, unless it is root's own. Group 0 is root's.
func CheckIDs(uid, gid uint32, groups []uint32, root bool) error {
	switch {
	case uid == NoID:
		return fmt.Errorf("%d is no user id", uid)
	case gid == NoID || slices.Contains(groups, NoID):
		return fmt.Errorf("%d is no group id", NoID)
	case root:
		return nil
	case uid == 0:
		return fmt.Errorf("user id 0 is root's")
	case gid == 0 || slices.Contains(groups, 0):
		return fmt.Errorf("group 0 is root's, and user id %d is not root", uid)
	}
	return nil
}

// CheckUser refuses a job whose user it can't be: one of no user, or of root or SlurmUser (system is the latter's id)
// that no kernel of a controller's host has vouched for.
func (s *Spec) CheckUser(system uint32) error {
	if s.From != FromController && system != 0 && s.UID == system {
		return fmt.Errorf("user id %d is SlurmUser's, whose jobs are submitted on controllers only", s.UID)
	}
	if s.From != FromController && s.UID == 0 {
		return fmt.Errorf("user id 0 is root's, whose jobs are submitted on controllers only")
	}
	return CheckIDs(s.UID, s.GID, s.Groups, s.UID == 0)
}
