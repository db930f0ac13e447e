package fence

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// whom is a daemon that is asked.
type whom struct {
	name       string
	addr       string
	role       string
	controller bool
	elsewhere  bool
}

// resolveTime is how long the names of the controllers may take together.
const resolveTime = 500 * time.Millisecond

// resolve gives the addresses of the controllers' hosts, and whether all names are known. gnoded does it while it hears
// a controller: a node that is cut off may have lost its name server, too.
func resolve(controllers []string) (hosts []string, all bool) {
	ctx, cancel := context.WithTimeout(context.Background(), resolveTime)
	defer cancel()
	all = true
	for _, addr := range controllers {
		host, _, _ := net.SplitHostPort(addr) // checked by Options
		ips, err := net.DefaultResolver.LookupHost(ctx, host)
		hosts = append(append(hosts, host), ips...)
		all = all && err == nil
	}
	return hosts, all
}

// list gives all who are asked. If a controller's host is unknown, no witness is known to be on another one.
func (f *facts) list() []whom {
	var out []whom
	for _, addr := range f.Controllers {
		out = append(out, whom{"the controller at " + addr, addr, pki.RoleCtld, true, false})
	}
	for _, w := range f.Witnesses {
		host, _, err := net.SplitHostPort(w.Addr)
		if err == nil {
			out = append(out, whom{"node " + w.Node, w.Addr, pki.RoleNode, false,
				f.Resolved && !slices.Contains(f.Hosts, host)})
		}
	}
	return out
}

// askAll asks everybody at once. It ends when somebody hears a leader, when all have answered, or with ctx.
func askAll(ctx context.Context, cfg *pki.Credentials, list []whom) []Answer {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make([]Answer, len(list))
	var wg sync.WaitGroup
	for i, w := range list {
		wg.Go(func() {
			a := Answer{Who: w.name, Controller: w.controller, Elsewhere: w.elsewhere}
			a.Sign, a.Leads = askOne(ctx, cfg, w)
			if answers[i] = a; a.Sign == Hears {
				cancel()
			}
		})
	}
	wg.Wait()
	return answers
}

// askOne asks one daemon whether it hears a leading controller.
func askOne(ctx context.Context, cfg *pki.Credentials, w whom) (Sign, time.Duration) {
	nc, err := pki.Dial(ctx, w.addr, pki.ProtoRPC, cfg, w.role)
	if err != nil {
		// That the connection was taken says little: whatever stands in between may have taken it.
		var none net.Error
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) {
			return Alive, 0
		}
		if ctx.Err() != nil || errors.As(err, &none) || errors.Is(err, context.DeadlineExceeded) {
			return Silent, 0
		}
		return Alive, 0 // it has shown a certificate that is no good, say
	}
	conn := rpc.Client(nc, rpc.ConnOptions{Name: w.name})
	defer func() { _ = conn.Close() }() // all is said
	f, err := conn.Call(ctx, proto.KindWitness, nil)
	if err != nil {
		return Alive, 0
	}
	var r proto.WitnessReply
	if proto.Decode(f.Body, &r) != nil {
		return Alive, 0
	}
	if !r.Hears {
		return Deaf, 0
	}
	return Hears, time.Duration(r.LeadsMS) * time.Millisecond
}
