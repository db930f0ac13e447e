package noded

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"time"

	"gbatch/internal/jobenv"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
)

// local.go serves the unix socket that commands talk to. The kernel says who asks; gnoded adds the names it knows for
// the uid and gid and passes the request on. It decides nothing: the leader believes it as far as its certificate goes.

const (
	localConns        = 2048 // commands connected at once
	localConnsPerUser = 512
	localMux          = 8 // requests at once on one connection: commands make one
	localIdle         = server.LocalIdle

	maxNames  = 4096 // users and groups whose names are remembered
	namesLast = 10 * time.Minute
)

// localServer answers requests on the socket.
type localServer struct {
	relay *relay
	names *names
	host  string
	log   *slog.Logger
}

func (s *localServer) options() server.Options {
	return server.Options{Log: s.log, MaxConns: localConns, MaxConnsPerUser: localConnsPerUser, MuxRequests: localMux, Idle: localIdle}
}

// handle passes one request on.
func (s *localServer) handle(ctx context.Context, r *server.Request) {
	if err := s.answer(ctx, r); err != nil {
		if ferr := r.Fail(plain(err)); ferr != nil {
			s.log.Debug("an answer was not delivered", "peer", r.Peer.String(), "kind", r.Kind, "err", ferr)
		}
	}
}

func (s *localServer) answer(ctx context.Context, r *server.Request) error {
	u, ok := r.Peer.User()
	if !ok {
		return rpc.Errorf(proto.CodeAccess, "%s", proto.Text(proto.CodeAccess))
	}
	if r.Kind == 0 || r.Kind >= proto.KindForward {
		return rpc.Errorf(proto.CodeBadRequest, "a request of kind %d is none that a user can make on this socket", r.Kind)
	}
	who := s.names.caller(u)
	who.Host = s.host
	if r.Kind == proto.KindAttend {
		return s.attend(ctx, r, &who)
	}
	return s.relay.forward(ctx, &who, r.Kind, r.Body, func(f *rpc.Frame) error {
		if f.More() {
			return r.ReplyMore(f.Body)
		}
		return r.Reply(f.Body)
	})
}

// plain makes err one that the user can see. Its own text stays where it is an answer of the leader; what kept a
// controller from answering is added to Slurm's sentence for it.
func plain(err error) error {
	var e *rpc.Error
	switch {
	case errors.As(err, &e) && e.Code == proto.CodeNoController && err.Error() != e.Text:
		return rpc.Errorf(e.Code, "%s", err.Error())
	case errors.As(err, &e):
		return err
	case errors.Is(err, rpc.ErrLost), errors.Is(err, rpc.ErrProtocol), errors.Is(err, rpc.ErrClosed):
		return rpc.Errorf(proto.CodeNoController, "%s: %v", errNoController.Text, err)
	}
	return err
}

// names remembers what users and groups are called. The database behind it may be across the network.
type names struct {
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

func newNames() *names {
	return &names{now: time.Now, user: user.LookupId, group: user.LookupGroupId, shells: loginShell,
		users: map[uint32]knownUser{}, groups: map[uint32]knownName{}}
}

// caller is u with names; one without a name is called by its number.
func (n *names) caller(u rpc.User) proto.Caller {
	return proto.Caller{UID: u.UID, GID: u.GID, Groups: u.Groups, User: n.account(u.UID).Name, Group: n.groupName(u.GID)}
}

// account gives what the password database says of uid.
func (n *names) account(uid uint32) jobenv.Account {
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

func (n *names) groupName(gid uint32) string {
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

// loginShell gives a user's shell as /etc/passwd has it, "" for one of another database.
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
