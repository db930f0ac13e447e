package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"gbatch/internal/proto"
	"gbatch/internal/rpc/server"
)

// TestFlow: a user's burst goes at once, what is beyond it waits, and what would wait for too long is refused; others,
// root and short answers don't wait.
func TestFlow(t *testing.T) {
	s := &Server{flow: newFlow()}
	now, cancel := context.WithCancel(context.Background())
	cancel() // who would have to wait gets an error at once
	ann, bob, root := &proto.Caller{UID: 1}, &proto.Caller{UID: 2}, &proto.Caller{}
	for range 3 * flowBurstS { // who has something left is served, and owes the rest
		if err := s.flows(now, ann, flowBytes/2); err != nil {
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			break
		}
	}
	if err := s.flows(now, ann, flowBytes); !errors.Is(err, context.Canceled) {
		t.Error("who has had the burst:", err)
	}
	if err := s.flows(now, ann, flowLeast-1); err != nil {
		t.Error("a short answer:", err)
	}
	for who, c := range map[string]*proto.Caller{"another user": bob, "root": root} {
		if err := s.flows(now, c, flowBytes); err != nil {
			t.Error(who, err)
		}
	}
	s.flow.Settle("1", 100*flowBytes)
	var f *fault
	if err := s.flows(context.Background(), ann, flowBytes); !errors.As(err, &f) ||
		f.Status != http.StatusTooManyRequests {
		t.Error("who owes far too much:", err)
	}
}

// oneUser is a controller whose tokens are all of one user.
type oneUser struct{ Cluster }

func (oneUser) Token(string) (proto.Caller, error) { return proto.Caller{User: "ann"}, nil }
func (oneUser) User(context.Context, string) (*proto.Caller, error) {
	return &proto.Caller{UID: 1, User: "ann"}, nil
}
func (oneUser) Admit(context.Context, uint32, int) (leave func(), err error) { return func() {}, nil }

// TestFlowOfRooms: what rooms answer counts too.
func TestFlowOfRooms(t *testing.T) {
	var moved error
	room := Room{Path: "/api", Serve: func(w http.ResponseWriter, r *http.Request, v *Visitor) {
		moved = Moves(r.Context(), v.Who, flowBytes)
	}}
	s := &Server{o: Options{Cluster: oneUser{}, Rooms: []Room{room}}, flow: newFlow(), routes: newRoutes()}
	ask := func() {
		r := httptest.NewRequest(http.MethodGet, "/api/tasks", nil)
		r.Header.Set(headerToken, "word")
		s.route(t.Context(), &answer{ResponseWriter: httptest.NewRecorder()}, r, r.URL.Path)
	}
	if ask(); moved != nil {
		t.Fatal(moved)
	}
	s.flow.Settle("1", 100*flowBytes)
	ask()
	if status, _ := StatusOf(moved); status != http.StatusTooManyRequests {
		t.Errorf("who owes far too much: %v", moved)
	}
}

// One host of IPv6 has 2^64 addresses, and as many places as one of IPv4. The unix socket's users have their own.
func TestPlacesPerNetwork(t *testing.T) {
	s := &Server{}
	in := 0
	for i := range maxConns {
		if s.open.enter(server.Host(fmt.Sprintf("[2001:db8::%x]:5", i))) {
			in++
		}
	}
	if in != maxConnsOf || !s.open.enter(server.Host("192.0.2.7:5")) {
		t.Errorf("one network of IPv6 has %d connections", in)
	}
	for uid := range maxConns {
		s.local.enter(fmt.Sprint("uid ", uid))
	}
	if !s.open.enter(server.Host("192.0.2.8:5")) || s.local.enter("uid 9999") {
		t.Error("users of the unix socket take the port's places")
	}
}
