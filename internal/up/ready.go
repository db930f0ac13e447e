package up

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

const (
	askEvery   = 25 * time.Millisecond // between two looks at a cluster that comes up
	askTimeout = 2 * time.Second
)

// askTries is how many sockets a request is tried on.
const askTries = 8

// ask makes one request to the cluster, over any of its sockets, and gives each part of the answer to each.
func ask(ctx context.Context, list []Member, kind uint16, request proto.Message, each func(body []byte) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	body, err := proto.Encode(request)
	if err != nil {
		return err
	}
	tries := 0
	err = errors.New("no daemon listens")
	for i := range list {
		socket := list[i].Addresses[len(list[i].Addresses)-1]
		if !strings.HasPrefix(socket, "/") || !exists(socket) {
			continue
		}
		if tries++; tries > askTries {
			break
		}
		var conn *rpc.Conn
		if conn, err = rpc.DialUnix(socket, askTimeout); err != nil {
			continue
		}
		err = conn.Stream(ctx, kind, body, func(f *rpc.Frame) error { return each(f.Body) })
		_ = conn.Close() // the answer is complete, or there is none
		var answered *rpc.Error
		if err == nil || errors.As(err, &answered) {
			return err
		}
	}
	return err
}

// state is how far a cluster is.
type state struct {
	ping   proto.PingReply
	up     map[string]model.Time // nodes that are registered, and since when their daemons run
	ctls   map[string]string     // the controllers' health, as the leader knows it
	parked []string              // nodes that `gbatch down` has set DOWN
	asked  bool                  // somebody answered
	notes  []string              // what the first node can\'t enforce
	err    error                 // why not
}

// dbdUp reports whether the gdbd at addr takes records.
func (s *state) dbdUp(addr string) bool {
	return slices.ContainsFunc(s.ping.Dbds, func(d proto.DbdInfo) bool { return d.Addr == addr && d.Up })
}

// look asks the cluster how it is.
func look(ctx context.Context, list []Member) (s state) {
	s.err = ask(ctx, list, proto.KindPing, &proto.Empty{}, func(body []byte) error { return proto.Decode(body, &s.ping) })
	if s.err != nil {
		return s
	}
	s.asked, s.up = true, map[string]model.Time{}
	if s.ctls, s.err = controllers(ctx, list, s.ping.Leader); s.err != nil {
		return s
	}
	s.err = ask(ctx, list, proto.KindNodes, &proto.NodesRequest{}, func(body []byte) error {
		var c proto.NodesChunk
		if err := proto.Decode(body, &c); err != nil {
			return err
		}
		for _, n := range c.Nodes {
			if n.Node.Link == model.LinkUp {
				s.up[n.Node.Def.Name] = n.Node.UpSince
			}
			if s.notes == nil {
				s.notes = n.Notes
			}
			if n.Node.Admin == model.NodeDown && n.Node.Reason == downReason {
				s.parked = append(s.parked, n.Node.Def.Name)
			}
		}
		return nil
	})
	return s
}

// controllers asks the leader for all controllers' health.
func controllers(ctx context.Context, list []Member, leader string) (map[string]string, error) {
	var r proto.ControllersReply
	var first []Member
	for _, m := range list {
		if m.Role == RoleController && m.Name == leader {
			first = append(first, m)
		}
	}
	read := func(body []byte) error { return proto.Decode(body, &r) }
	if err := ask(ctx, first, proto.KindControllers, &proto.Empty{}, read); err != nil {
		return nil, err
	}
	health := map[string]string{}
	for _, c := range r.List {
		health[c.Name] = c.Health
	}
	return health, nil
}

// strangers gives the controllers that run, and that the cluster doesn't have.
func (s *state) strangers(list []Member) (out []string) {
	for i := range list {
		if m := &list[i]; m.Role == RoleController && s.ctls != nil {
			if _, known := s.ctls[m.Name]; !known {
				out = append(out, m.Name)
			}
		}
	}
	return out
}

// missing says what the cluster still lacks, "" if nothing. A node that was started at a known moment has to have
// registered since.
func (s *state) missing(list []Member, started map[string]model.Time) string {
	if !s.asked {
		return fmt.Sprintf("no controller answers (%v)", s.err)
	}
	if s.ping.Leader == "" {
		return "no controller leads"
	}
	var out, nodes []string
	for i := range list {
		switch m := &list[i]; {
		case m.Off():
		case m.Role == RoleNode && (s.up[m.Name] == 0 || s.up[m.Name] < started[m.Name]):
			nodes = append(nodes, m.Name)
		case m.Role == RoleController && s.ctls[m.Name] != "ok" && s.ctls[m.Name] != "":
			out = append(out, "controller "+m.Name+": "+s.ctls[m.Name])
		case m.Role == RoleAccounting && !s.dbdUp(m.Addresses[0]):
			out = append(out, m.String()+" has not answered the controller")
		}
	}
	if len(nodes) > 0 {
		out = append(out, "not registered: "+hostlist.Compress(nodes))
	}
	if len(out) == 0 && !s.ping.Ready {
		out = append(out, "no node takes jobs")
	}
	return strings.Join(out, "; ")
}

// await waits until the whole cluster is there. A daemon that ends meanwhile is an error at once; a cluster that takes
// jobs although something is missing after the time given is not, and comes with a sentence about it.
func await(ctx context.Context, list []Member, children []*child, limit time.Duration,
	say func(string, ...any)) (s state, warning string, err error) {
	deadline := time.Now().Add(limit)
	led, nodes, said := len(children) == 0, 0, time.Now()
	started := map[string]model.Time{}
	for _, c := range children {
		started[c.m.Name] = model.Time(c.at.UnixMilli())
	}
	all := 0
	for i := range list {
		if list[i].Role == RoleNode && !list[i].Off() {
			all++
		}
	}
	for {
		for _, c := range children {
			select {
			case <-c.ended:
				return s, "", c.failure()
			default:
			}
		}
		s = look(ctx, list)
		if ctx.Err() != nil {
			return s, "", ctx.Err()
		}
		if s.ping.Leader != "" && !led {
			led = true
			say("controller %s leads", s.ping.Leader)
		}
		if s.err == nil {
			if err := resume(ctx, list, &s); err != nil {
				return s, "", fmt.Errorf("resume the nodes that gbatch down had set down: %w", err)
			}
		}
		if n := len(s.up); n > nodes && n < all && time.Since(said) > time.Second {
			nodes, said = n, time.Now()
			say("%d of %d nodes are registered", n, all)
		}
		missing := s.missing(list, started)
		if missing == "" {
			return s, "", nil
		}
		if time.Now().After(deadline) {
			if s.ping.Ready {
				return s, missing, nil
			}
			return s, "", fmt.Errorf("the cluster takes no jobs after %v: %s\n%s", limit, missing, lastWords(culprit(list, &s)))
		}
		select {
		case <-time.After(askEvery):
		case <-ctx.Done():
			return s, "", ctx.Err()
		}
	}
}

// culprit is the daemon whose log explains best why the cluster isn't ready.
func culprit(list []Member, s *state) *Member {
	for i := range list {
		if m := &list[i]; s.ping.Leader != "" && m.Role == RoleNode && s.up[m.Name] == 0 && !m.Off() {
			return m
		}
	}
	return &list[0]
}
