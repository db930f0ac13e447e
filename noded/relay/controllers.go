package relay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"gbatch/internal/certs"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// controllers.go knows the controllers and remembers the last leader; find.go finds the present one. The session with
// the leader and the relay of users' requests share both.

const (
	// UserTimeout is how long sent bytes may stay unacknowledged before the kernel gives the connection up: a leader
	// whose host died sends no FIN. Heartbeats make sure that something is always sent.
	UserTimeout = 15 * time.Second
)

// Controllers knows the addresses of the controllers and which of them led last.
type Controllers struct {
	tls *pki.Credentials

	own map[string]string // addresses by name, as this host's configuration has them

	mu    sync.Mutex
	addrs []string // host:port, as configured, or as a leader has told
	last  string   // the address of the last leader
	kept  string   // file with addrs, for the next start; "": none
	log   *slog.Logger

	asking sync.WaitGroup // searches' connections

	connect func(ctx context.Context, addr string) (net.Conn, error)
}

// NewControllers returns the controllers at these addresses, host:port; own has those of them whose names are known.
func NewControllers(addrs []string, own map[string]string, cfg *pki.Credentials) *Controllers {
	c := &Controllers{addrs: addrs, own: own, tls: cfg}
	c.connect = c.overTLS
	return c
}

// ControllersOver is NewControllers for another network than the host's: simulations have one of their own.
func ControllersOver(addrs []string, connect func(ctx context.Context, addr string) (net.Conn, error)) *Controllers {
	return &Controllers{addrs: addrs, connect: connect}
}

// Mine gives the addresses of controllers that a leader has told as NAME=HOST:PORT. Where this host's configuration has
// an address for a name, that one counts: a host may reach a controller on another network than the controllers reach
// each other.
func (c *Controllers) Mine(told []string) []string {
	var out []string
	for _, t := range told {
		name, addr, named := strings.Cut(t, "=")
		switch own := c.own[name]; {
		case !named:
			addr = t
		case own != "":
			addr = own
		}
		if _, _, err := net.SplitHostPort(addr); err == nil && !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	return out
}

// takeRevoked refuses certificates that were revoked, on a login host, which has no session with the leader.
func (c *Controllers) takeRevoked(answer []byte) {
	var list proto.Revoked
	if proto.Decode(answer, &list) == nil {
		c.tls.Refuse(certs.Refusing(list.List))
	}
}

// Order gives the addresses to try, the last leader's first.
func (c *Controllers) Order() []string { return slices.Clone(c.order()) }

// order gives the addresses to try: the last leader's, then the others as configured.
func (c *Controllers) order() []string {
	c.mu.Lock()
	last, addrs := c.last, c.addrs
	c.mu.Unlock()
	if last == "" {
		return addrs
	}
	out := append(make([]string, 0, len(addrs)+1), last)
	for _, a := range addrs {
		if a != last {
			out = append(out, a)
		}
	}
	return out
}

// Several reports whether another controller can lead than the one that does.
func (c *Controllers) Several() bool { return len(c.Addrs()) > 1 }

// Addrs gives the addresses. Nobody may change the slice.
func (c *Controllers) Addrs() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.addrs
}

// Know takes the controllers that a leader tells (Mine), instead of those that were known. It reports whether they
// differ.
func (c *Controllers) Know(told []string) bool {
	addrs := c.Mine(told)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(addrs) == 0 || slices.Equal(addrs, c.addrs) {
		return false
	}
	c.addrs = addrs
	if c.kept == "" {
		return true
	}
	text := []byte(strings.Join(told, "\n") + "\n")
	if err := errors.Join(os.WriteFile(c.kept+".new", text, 0o600), os.Rename(c.kept+".new", c.kept)); err != nil {
		c.log.Warn("the list of controllers could not be kept for the next start", "err", err)
	}
	return true
}

// maxKept bounds the file that Keep reads, bytes.
const maxKept = 64 << 10

// Keep keeps the list that a leader tells in a file, and adds what the last run has kept there to the configured one: a
// host whose configuration is from before a change of the controllers finds them.
func (c *Controllers) Keep(path string, log *slog.Logger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept, c.log = path, log
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil || len(text) > maxKept {
		log.Warn("the list of controllers of the last run can't be used", "file", path, "err", err)
		return
	}
	for _, addr := range c.Mine(strings.Fields(string(text))) {
		if !slices.Contains(c.addrs, addr) {
			c.addrs = append(slices.Clone(c.addrs), addr)
		}
	}
}

// Leads notes the leader's address; "": unknown. The next search begins there.
func (c *Controllers) Leads(addr string) {
	c.mu.Lock()
	c.last = addr
	c.mu.Unlock()
}

// overTLS connects with this host's certificate.
func (c *Controllers) overTLS(ctx context.Context, addr string) (net.Conn, error) {
	nc, err := pki.Dial(ctx, addr, pki.ProtoRPC, c.tls, pki.RoleCtld)
	if err != nil {
		return nil, err
	}
	if err := pki.GiveUpAfter(nc, UserTimeout); err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to the controller at %s: %w", addr, err), nc.Close())
	}
	return nc, nil
}

// dial opens an rpc connection to the controller at addr.
func (c *Controllers) dial(ctx context.Context, addr string, quiet func()) (*rpc.Conn, error) {
	nc, err := c.connect(ctx, addr)
	if err != nil {
		return nil, err
	}
	return rpc.Client(nc, rpc.ConnOptions{Name: "controller at " + addr, Quiet: quiet}), nil
}
