package metrics

import (
	"cmp"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
)

// Everybody may scrape where nothing is private, also those whom nobody knows. A scrape walks all jobs, so equal ones
// share an answer for a while.
const (
	keptFor    = time.Second // as long as an answer is given to others
	maxScrapes = 4           // answers made at the same time; more are answered 503
	maxKept    = 64          // answers kept: paths by formats
)

// Handler serves the paths below /metrics; look is called once for each answer that is made.
func Handler(look func(r *http.Request) Source) http.Handler {
	s := &served{look: look, turns: make(chan struct{}, maxScrapes), kept: map[string]*answer{}}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		what := strings.TrimSuffix(r.URL.Path[strings.LastIndex(r.URL.Path, "/metrics"):], "/")
		what = strings.TrimPrefix(strings.TrimPrefix(what, "/metrics"), "/")
		format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultOpenMetricsAcceptedFormats()...)
		a, mine := s.answer(what+"\x00"+string(format), time.Now())
		if a == nil {
			http.Error(w, "too many scrapes at the same time", http.StatusServiceUnavailable)
			return
		}
		if mine {
			s.make(a, r, what)
		}
		select {
		case <-a.made:
		case <-r.Context().Done():
			return
		}
		for k, v := range a.header {
			w.Header()[k] = v
		}
		w.WriteHeader(a.code)
		_, _ = w.Write(a.body) // the client may have left
	})
}

// served has the answers of the last moment.
type served struct {
	look  func(r *http.Request) Source
	turns chan struct{} // holds one for each answer that is being made

	mu   sync.Mutex
	kept map[string]*answer // by path and format
}

// answer is one that is made, or was; it is also what it is written to.
type answer struct {
	at     time.Time
	made   chan struct{} // closed when it is
	header http.Header
	code   int
	body   []byte
}

func (a *answer) Header() http.Header    { return a.header }
func (a *answer) WriteHeader(status int) { a.code = status }
func (a *answer) Write(b []byte) (int, error) {
	a.body = append(a.body, b...)
	return len(b), nil
}

// answer gives the answer for a key; mine: the caller makes it. nil: too many are being made.
func (s *served) answer(key string, now time.Time) (a *answer, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, old := range s.kept {
		if now.Sub(old.at) >= keptFor {
			delete(s.kept, k)
		}
	}
	if a := s.kept[key]; a != nil {
		return a, false
	}
	select {
	case s.turns <- struct{}{}:
	default:
		return nil, false
	}
	a = &answer{at: now, made: make(chan struct{}), header: http.Header{}}
	if len(s.kept) < maxKept {
		s.kept[key] = a
	}
	return a, true
}

func (s *served) make(a *answer, r *http.Request, what string) {
	defer func() {
		<-s.turns
		if a.code == 0 { // it panicked
			a.code = http.StatusInternalServerError
		}
		close(a.made)
	}()
	// Text of a scrape is a MiB and more; packing it would cost more than all the rest.
	promhttp.HandlerFor(&scrape{Source: s.look(r), what: what},
		promhttp.HandlerOpts{EnableOpenMetrics: true, DisableCompression: true}).ServeHTTP(a,
		&http.Request{Method: http.MethodGet, URL: r.URL, Header: http.Header{"Accept": r.Header["Accept"]}})
	a.code = cmp.Or(a.code, http.StatusOK)
}
