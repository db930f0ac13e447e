package trust

import (
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// Caller is who asks, as the asked daemon has proven it.
type Caller uint8

// The callers. Users are those whom the kernel of a controller's host has named; daemons have a certificate.
const (
	Stranger Caller = iota
	User
	Coordinator
	Operator
	Administrator
	LoginHost
	Node
	Controller
	Gdbd
	numCallers
)

var callerNames = [numCallers]string{"stranger", "user", "coordinator", "operator", "administrator", "login host",
	"node", "controller", "gdbd"}

func (c Caller) String() string {
	if c >= numCallers {
		return "unknown"
	}
	return callerNames[c]
}

// OfRole gives the caller of a certificate's role. Other roles are strangers.
func OfRole(role string) Caller {
	switch role {
	case "login":
		return LoginHost
	case "node":
		return Node
	case "ctld":
		return Controller
	case "dbd":
		return Gdbd
	}
	return Stranger
}

// OfRights gives the caller of a user with these rights.
func OfRights(r model.Rights) Caller { return min(User+Caller(r), Administrator) }

// Word says what a caller gets of a kind of request.
type Word uint8

// The words. Those of users are ordered: each allows what the ones before it do.
const (
	Refused Word = iota // before its body is decoded
	Sees                // everything but what PrivateData hides
	Own                 // what is the caller's own
	Below               // and what is in accounts that the caller coordinates, or below them
	All                 // everybody's

	Passes  // a daemon passes it on for users; see Vouch
	Itself  // a daemon asks for itself
	Both    // both
	Session // a message within the session between a node and the leader, which Hello begins; not a request
	Inner   // it carries another request, whose row counts
)

var words = [...]string{Refused: "-", Sees: "sees", Own: "own", Below: "accounts", All: "all", Passes: "passes on",
	Itself: "itself", Both: "itself, passes on", Session: "in its session", Inner: "what is in it"}

func (w Word) String() string {
	if int(w) >= len(words) {
		return "unknown"
	}
	return words[w]
}

// Covers reports whether a user's word allows to act on something: own says that it is the caller's, coordinated that
// it is in an account that the caller coordinates.
func (w Word) Covers(own, coordinated bool) bool {
	switch w {
	case Own:
		return own
	case Below:
		return own || coordinated
	case All:
		return true
	}
	return false
}

// Row has a word for each caller.
type Row [numCallers]Word

// Of gives the row of a kind. A kind that has none is refused to all.
func Of(kind uint16) Row { return table[kind] }

// May gives what a caller gets of a kind.
func May(c Caller, kind uint16) Word {
	if c >= numCallers {
		return Refused
	}
	return table[kind][c]
}

// Asks reports whether a daemon may make a request of a kind by itself.
func Asks(c Caller, kind uint16) bool {
	w := May(c, kind)
	return w == Itself || w == Both
}

// Why is the reason for which a daemon is not believed.
type Why uint8

// The reasons.
const (
	Believed   Why = iota
	NotPassed      // it may not pass on this kind
	NoUser         // what it names is no user
	SystemUser     // root and SlurmUser are believed on controllers only
	NoJob          // a node, and the user has no job there
)

// Claim is a user's request that a daemon passes on.
type Claim struct {
	By     Caller
	Kind   uint16       // of the request, and not of a Once or Stale around it
	Effect proto.Effect // proto.Reads: anybody's name will do, because nothing is done; see SeesAs
	UID    uint32
	System uint32                // SlurmUser
	HasJob func(uid uint32) bool // asked of nodes
}

// Vouch decides whether a daemon is believed about who asks. A controller is: its kernel has said it.
func Vouch(c *Claim) Why {
	w, weighs := May(c.By, c.Kind), c.By != Controller && c.Effect != proto.Reads
	switch {
	case c.UID == model.NoID:
		return NoUser
	case weighs && (c.UID == 0 || c.UID == c.System):
		return SystemUser
	case w != Passes && w != Both:
		return NotPassed
	case weighs && c.By == Node && !c.HasJob(c.UID):
		return NoJob
	}
	return Believed
}

// SeesAs gives the user as whom a claim that is believed is answered. A question of a node about a user without a job
// there is answered as nobody's: whoever has the node's key could else name everybody, one after the other. Where other
// nodes are it asks for itself, as root.
func SeesAs(c *Claim) uint32 {
	own := c.UID == 0 && c.Kind == proto.KindPeers
	if c.By == Node && c.Effect == proto.Reads && !own && !c.HasJob(c.UID) {
		return model.NoID
	}
	return c.UID
}

// MostRights gives the most rights that a user has whose request a daemon passes on.
func MostRights(by Caller, login model.Rights) model.Rights {
	switch by {
	case Controller:
		return model.RightsAdministrator
	case LoginHost:
		return login
	}
	return model.RightsUser
}
