package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"gbatch/internal/proto"
)

// rooms.go is about paths that are no operations. What those share that other packages answer is here: who asks, and
// each user's share.

// Room is a path, and what answers it and all below it.
type Room struct {
	Path   string
	Stream bool // it takes long: it counts its clients itself, and not against the shares of requests
	Open   bool // nobody needs a token; Who is nil without one, and for requests of other sites
	Serve  func(w http.ResponseWriter, r *http.Request, v *Visitor)
}

// Visitor is who asks.
type Visitor struct {
	Who  *proto.Caller // nil: nobody says, and the room is open
	Path string        // of the request, below the server's own path
	// Again says who asks, as things are now: a token that has ended since is an error.
	Again func(ctx context.Context) (*proto.Caller, error)
}

// room answers a request in a room; false: it is of none. The longest path counts.
func (s *Server) room(ctx context.Context, w *answer, r *http.Request, path string) bool {
	var at *Room
	for i := range s.o.Rooms {
		p := &s.o.Rooms[i]
		rest, is := strings.CutPrefix(path, p.Path)
		if is && (rest == "" || rest[0] == '/' || p.Path == "/") && (at == nil || len(p.Path) > len(at.Path)) {
			at = p
		}
	}
	if at == nil {
		return false
	}
	v := &Visitor{Path: path}
	v.Again = func(ctx context.Context) (*proto.Caller, error) { return s.caller(ctx, r) }
	who, err := s.caller(r.Context(), r)
	switch {
	case err == nil:
		v.Who = who
	case at.Open && (errors.Is(err, errNoToken) || errors.Is(err, errElsewhere)):
		at.Serve(w, r.WithContext(ctx), v)
		return true
	case errors.Is(err, errNoToken), errors.Is(err, errToken):
		w.Header().Set("WWW-Authenticate", "Bearer")
		roomFault(w, http.StatusUnauthorized, strings.ReplaceAll(err.Error(), "\n", ": "))
		return true
	default:
		f := asFault(err, path)
		roomFault(w, f.Status, f.Detail)
		return true
	}
	if at.Stream {
		at.Serve(w, r, v)
		return true
	}
	leave, err := s.o.Cluster.Admit(ctx, who.UID, RoomClaim(r, maxBody))
	if err != nil {
		f := asFault(err, path)
		roomFault(w, f.Status, f.Detail)
		return true
	}
	defer leave()
	at.Serve(w, r.WithContext(ctx), v)
	return true
}

// roomFault answers with an error as the rooms write it.
func roomFault(w http.ResponseWriter, status int, text string) {
	b, _ := json.Marshal(map[string]any{"success": false, "error": text}) // of texts: it can't fail
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // who has gone needs no answer
}

// StatusOf is HTTP's status of an error of the cluster, and its words.
func StatusOf(err error) (status int, text string) {
	f := asFault(err, "")
	return f.Status, f.Detail
}

// What follows is open to everybody: whether this controller lives and serves, the specification, and metrics.

var nobody = &proto.Caller{UID: ^uint32(0), GID: ^uint32(0)}

// readyAge is how old a follower's facts may be for it to count as ready.
const readyAge = 10 * time.Second

// open3 answers what needs no token; false: it is something else.
func (s *Server) open3(w *answer, r *http.Request, path string) bool {
	get := r.Method == http.MethodGet || r.Method == http.MethodHead
	if !get {
		return false
	}
	switch p := strings.TrimSuffix(path, "/"); p {
	case "/livez":
		plainText(w, http.StatusOK, "ok\n")
	case "/readyz", "/healthz":
		f := s.o.Cluster.Facts()
		switch {
		case f.Config().Cluster == "":
			plainText(w, http.StatusServiceUnavailable, "this controller has no state yet\n")
		case f.Leaderless:
			plainText(w, http.StatusServiceUnavailable, "no controller leads\n")
		case !f.Leads && f.Age > readyAge:
			plainText(w, http.StatusServiceUnavailable, "this controller has not heard the leader for "+
				f.Age.Round(time.Second).String()+"\n")
		default:
			plainText(w, http.StatusOK, "ok\n")
		}
	case "/openapi", "/openapi/v3", "/openapi.json", "/openapi.yaml":
		s.specification(w, strings.HasSuffix(p, ".yaml"))
	case "/metrics", "/metrics/all", "/metrics/jobs", "/metrics/nodes", "/metrics/partitions", "/metrics/jobs-users-accts",
		"/metrics/scheduler":
		if s.o.Metrics == nil {
			return false
		}
		s.metrics(w, r)
	default:
		return false
	}
	return true
}

// counts is what the server knows of itself.
type counts struct {
	changes lastChange
	tags    tags
}

// metrics answers a scrape. Everybody may, unless MetricsAuthUsers names who, or PrivateData hides something: then
// somebody who sees everything.
func (s *Server) metrics(w *answer, r *http.Request) {
	private := len(s.o.Cluster.Facts().Config().Params.PrivateData) > 0 && !s.o.MetricsPrivate
	if len(s.o.MetricsUsers) > 0 || private {
		who, err := s.caller(r.Context(), r)
		switch {
		case err != nil:
			plainText(w, http.StatusUnauthorized, "metrics need a token here: "+err.Error())
			return
		case s.o.Cluster.Trusted(who):
		case len(s.o.MetricsUsers) > 0 && !slices.Contains(s.o.MetricsUsers, who.User),
			private && s.o.Cluster.Sees(who) != "":
			plainText(w, http.StatusForbidden, "metrics are not for "+who.User+" (MetricsAuthUsers, PrivateData)")
			return
		}
	}
	s.o.Metrics.ServeHTTP(w, r)
}
