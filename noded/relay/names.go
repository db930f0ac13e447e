package relay

import (
	"bufio"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"gbatch/internal/jobenv"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// names.go finds this host's names of users and groups.

const (
	maxNames  = 4096 // cached users and groups
	namesLast = 10 * time.Minute
)

// Names caches the names of users and groups, since their database may be across the network.
type Names struct {
	now    func() time.Time
	user   func(uid string) (*user.User, error)
	group  func(gid string) (*user.Group, error)
	shells func(name string) string

	mu     sync.Mutex
	users  map[uint32]knownUser
	groups map[uint32]knownName
}

type knownUser struct {
	jobenv.Account
	at time.Time
}

type knownName struct {
	name string
	at   time.Time
}

// NewNames returns a cache of the host's databases.
func NewNames() *Names {
	return &Names{now: time.Now, user: user.LookupId, group: user.LookupGroupId, shells: loginShell,
		users: map[uint32]knownUser{}, groups: map[uint32]knownName{}}
}

// Add adds a user that the host's databases don't have; it lasts as long as one that they have.
func (n *Names) Add(uid uint32, a jobenv.Account) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.users[uid] = knownUser{a, n.now()}
}

// caller is u with names; the number replaces a name that is missing.
func (n *Names) caller(u rpc.User) proto.Caller {
	return proto.Caller{UID: u.UID, GID: u.GID, Groups: u.Groups, User: n.Account(u.UID).Name, Group: n.groupName(u.GID)}
}

// Account gives uid's entry of the password database.
func (n *Names) Account(uid uint32) jobenv.Account {
	n.mu.Lock()
	known, ok := n.users[uid]
	n.mu.Unlock()
	if ok && n.now().Sub(known.at) < namesLast {
		return known.Account
	}
	digits := strconv.FormatUint(uint64(uid), 10)
	a := jobenv.Account{Name: digits}
	if u, err := n.user(digits); err == nil {
		a = jobenv.Account{Name: u.Username, Home: u.HomeDir, Shell: n.shells(u.Username)}
	}
	n.mu.Lock()
	if len(n.users) >= maxNames {
		clear(n.users)
	}
	n.users[uid] = knownUser{a, n.now()}
	n.mu.Unlock()
	return a
}

func (n *Names) groupName(gid uint32) string {
	n.mu.Lock()
	known, ok := n.groups[gid]
	n.mu.Unlock()
	if ok && n.now().Sub(known.at) < namesLast {
		return known.name
	}
	name := strconv.FormatUint(uint64(gid), 10)
	if g, err := n.group(name); err == nil {
		name = g.Name
	}
	n.mu.Lock()
	if len(n.groups) >= maxNames {
		clear(n.groups)
	}
	n.groups[gid] = knownName{name, n.now()}
	n.mu.Unlock()
	return name
}

// loginShell gives a user's shell from /etc/passwd, "" for a user of another database.
func loginShell(name string) string {
	const maxPasswd = 16 << 20
	f, err := os.Open("/etc/passwd")
	if err != nil {
		return ""
	}
	defer f.Close()
	sc := bufio.NewScanner(io.LimitReader(f, maxPasswd))
	for sc.Scan() {
		rest, ok := strings.CutPrefix(sc.Text(), name+":")
		if !ok {
			continue
		}
		if fields := strings.Split(rest, ":"); len(fields) == 6 {
			return fields[5]
		}
	}
	return ""
}
