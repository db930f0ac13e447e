package rest

import (
	"net/http"
	"sync"
)

// specification serves what is served, as OpenAPI.
func (s *Server) specification(w *answer, yaml bool) {
	w.Header().Set("Content-Type", map[bool]string{true: "application/yaml", false: "application/json"}[yaml])
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(served()) // JSON is YAML too; who has gone needs no answer
}

var served = sync.OnceValue(func() []byte { return []byte("{}") })

func (s *Server) metrics(w *answer, r *http.Request, path string) {
	s.o.Metrics.ServeHTTP(w, r)
}
