package ctld

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gbatch/ctld/rest"
	"gbatch/internal/wire/wiretest"
)

// nobody is a user that every host has, and someUsers does not give anything.
const nobody = "nobody"

// FuzzHTTP sends a controller what a user without rights may send over HTTP: every operation of the served
// specification, the small facade and the pages, with parameters and bodies of the names that the specification has.
func FuzzHTTP(f *testing.F) {
	path := filepath.Join(f.TempDir(), "http")
	z := newFuzzed(f, func(o *Options) {
		o.UID = uint32(os.Getuid()) // who may speak for nobody
		o.HTTP = rest.Config{Socket: path}
	})
	z.openHTTP()
	if z.web == nil {
		f.Fatal("no HTTP is served")
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- z.web.Run(ctx) }()
	fed := make(chan struct{})
	go func() { defer close(fed); z.feed.Run(ctx) }()
	f.Cleanup(func() {
		stop()
		<-fed
		fuzzMust(f, <-served)
	})
	h := &httpSender{z: z, client: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}}}
	fuzzMust(f, h.learn())
	f.Add([]byte{0})
	for i := range len(h.operations) {
		for _, fill := range []byte{0, 1, 7} {
			b := bytes.Repeat([]byte{fill}, 200)
			for k := range b {
				b[k] += byte(k) * fill * byte(i)
			}
			b[0], b[1], b[2] = fill, byte(i), byte(i>>8)
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &wiretest.Filler{Bytes: b, Texts: h.texts}
		how := s.Next()
		z.bounded(t, len(b), func() {
			for range 1 + how>>1%3 {
				h.send(t, s, how&1 != 0)
			}
		})
		if text := z.harm(true, "n1", "n2", "n3"); text != "" {
			t.Errorf("%s (by %s over HTTP)", text, nobody)
		}
	})
}

type httpSender struct {
	z          *fuzzed
	client     *http.Client
	operations [][2]string // method and path
	names      []string    // of parameters and fields
	texts      []string
}

// learn takes operations and names from the specifications that are served, and adds what has none.
func (h *httpSender) learn() error {
	names := map[string]bool{}
	for _, at := range []string{"/openapi/v3", "/api/v1/openapi.json"} {
		_, body, err := h.do(http.MethodGet, at, nil, fuzzAnswer)
		if err != nil {
			return err
		}
		var spec struct {
			Paths map[string]map[string]json.RawMessage
		}
		if err := json.Unmarshal(body, &spec); err != nil {
			return err
		}
		for path, methods := range spec.Paths {
			for method := range methods {
				h.operations = append(h.operations, [2]string{strings.ToUpper(method), path})
			}
		}
		var all any
		if err := json.Unmarshal(body, &all); err != nil {
			return err
		}
		specNames(all, names)
	}
	for _, path := range []string{"/", "/jobs", "/job/1", "/gpus", "/timeline", "/queue", "/share", "/operators",
		"/metrics", "/metrics/jobs", "/livez", "/readyz", "/healthz", "/../etc/passwd", "/static/../x", "/api/v1/events"} {
		h.operations = append(h.operations, [2]string{http.MethodGet, path}, [2]string{http.MethodPost, path})
	}
	slices.SortFunc(h.operations, func(a, b [2]string) int { return strings.Compare(a[1]+a[0], b[1]+b[0]) })
	for name := range names {
		h.names = append(h.names, name)
	}
	slices.Sort(h.names)
	h.texts = slices.Concat(fuzzTexts, []string{"<script>", "../..", "%2e%2e/", "{}", "null", "1e999", "SIGKILL",
		"Infinity"})
	return nil
}

// specNames collects the names of parameters and of schemas' fields.
func specNames(v any, to map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		if props, ok := v["properties"].(map[string]any); ok {
			for name := range props {
				to[name] = true
			}
		}
		if name, ok := v["name"].(string); ok {
			to[name] = true
		}
		for _, x := range v {
			specNames(x, to)
		}
	case []any:
		for _, x := range v {
			specNames(x, to)
		}
	}
}

// value makes what JSON can say.
func (h *httpSender) value(s *wiretest.Filler, depth int) any {
	kind := s.Next() % 8
	if depth > 5 && kind < 4 {
		kind += 4
	}
	switch kind {
	case 0, 1, 2:
		m := map[string]any{}
		for range s.Next() % 6 {
			m[h.name(s)] = h.value(s, depth+1)
		}
		return m
	case 3:
		list := []any{}
		for range s.Next() % 4 {
			list = append(list, h.value(s, depth+1))
		}
		return list
	case 4:
		return s.Next()&1 != 0
	case 5:
		return nil
	case 6:
		return []any{0, 1, -1, 1.5, 1e18, -1e18, 65536, 1 << 31}[s.Next()%8]
	}
	return s.Text()
}

func (h *httpSender) name(s *wiretest.Filler) string {
	return h.names[(int(s.Next())|int(s.Next())<<8)%len(h.names)]
}

// send makes one request.
func (h *httpSender) send(t *testing.T, s *wiretest.Filler, raw bool) {
	op := h.operations[(int(s.Next())|int(s.Next())<<8)%len(h.operations)]
	path := op[1]
	for {
		before, rest, found := strings.Cut(path, "{")
		_, after, closed := strings.Cut(rest, "}")
		if !found || !closed {
			break
		}
		path = before + url.PathEscape(s.Text()) + after
	}
	query := url.Values{}
	for range s.Next() % 4 {
		query.Add(h.name(s), s.Text())
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	body := s.Bytes
	if !raw {
		var err error
		v := h.value(s, 0)
		if op[0] == http.MethodPost && s.Next()&3 != 0 { // a submission's shape, most often
			v = map[string]any{"job": v, "script": "#!/bin/sh\n"}
		}
		if body, err = json.Marshal(v); err != nil {
			t.Fatal(err)
		}
	}
	patience := fuzzAnswer
	if strings.HasPrefix(path, "/api/v1/events") {
		patience = fuzzWait
	}
	begun := time.Now()
	if _, _, err := h.do(op[0], path, body, patience); err != nil && time.Since(begun) >= fuzzAnswer {
		t.Errorf("%s %s: no answer: %v", op[0], path, err)
	}
}

func (h *httpSender) do(method, path string, body []byte, patience time.Duration) (status int, answer []byte,
	err error) {
	ctx, cancel := context.WithTimeout(h.z.life, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://gbatch"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Slurm-User-Name", nobody)
	w, err := h.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	answer, err = io.ReadAll(io.LimitReader(w.Body, 64<<20))
	_ = w.Body.Close() // it was read
	return w.StatusCode, answer, err
}
