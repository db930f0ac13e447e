package rest

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"gbatch/internal/proto"
)

// health.go is what is open to everybody: whether this controller lives and serves, the specification, and metrics.

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
	case "/metrics", "/metrics/jobs", "/metrics/nodes", "/metrics/partitions", "/metrics/jobs-users-accts",
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
