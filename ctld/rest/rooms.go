package rest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"gbatch/internal/proto"
)

// rooms.go is about paths that other packages answer. What they share is here: who asks, and each user's share.

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
	leave, err := s.o.Cluster.Admit(ctx, who.UID, Claim(r, maxBody))
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
