package rest

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.yaml.in/yaml/v3"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// long is a controller with many jobs of one user, given in parts.
type long struct {
	oneUser
	view   *state.View
	breaks bool // in the middle
	given  atomic.Int64
}

const (
	longParts = 100
	longPart  = 30
)

func (l *long) Facts() Facts                           { return Facts{View: l.view, Stamp: l} }
func (*long) Sees(*proto.Caller) string                { return "" }
func (*long) MayAsk(who *proto.Caller, k uint16) error { return nil }

func (*long) MayChange(who *proto.Caller, sp *model.Spec) bool { return true }

func (l *long) Ask(_ context.Context, _ *proto.Caller, _ uint16, _ proto.Message,
	each func([]byte) error) (time.Duration, error) {
	for n := range longParts {
		if l.breaks && n == longParts/2 {
			return 0, errors.New("gdbd is gone")
		}
		var c proto.RecordsChunk
		for k := range longPart {
			c.Records = append(c.Records, &model.Record{Job: model.JobID(n*longPart + k + 1), User: "ann",
				State: model.Completed, End: 1})
		}
		b, err := proto.Encode(&c)
		if err == nil {
			err = each(b)
		}
		if err != nil {
			return 0, err
		}
		l.given.Add(1)
	}
	return 0, nil
}

// pipes is a listener of connections that hold nothing: who does not read keeps the other side from writing.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.UnixAddr{} }

// TestSlowReader: an answer of any length is made at its reader's pace, in each form, and is whole; one that can't be
// made to its end says why, and ends as no whole one does.
func TestSlowReader(t *testing.T) {
	for _, x := range []struct {
		name, accept, packed string
		breaks               bool
	}{{"JSON", "", "identity", false}, {"gzip", "", "gzip", false}, {"YAML", mimeYAML, "", false},
		{"breaks off", "", "identity", true}, {"gzip breaks off", "", "gzip", true}} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &long{view: state.New().View(), breaks: x.breaks}
				s := &Server{o: Options{Cluster: l, Log: slog.New(slog.DiscardHandler)}, flow: newFlow(), held: newHeld(),
					rows: newRowsKept(), routes: newRoutes()}
				h := &http.Server{Handler: http.HandlerFunc(s.serve)}
				in := make(pipes)
				go h.Serve(in) //nolint:errcheck // its end is Close's
				defer h.Close()
				defer close(in)
				here, there := net.Pipe()
				in <- there
				defer here.Close()
				_, err := fmt.Fprintf(here, "GET /slurmdb/v0.0.44/jobs/?start_time=0&skip_steps=true HTTP/1.1\r\nHost: a\r\n"+
					"%s: word\r\nAccept: %s\r\nAccept-Encoding: %s\r\n\r\n", headerToken, x.accept, x.packed)
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if n := l.given.Load(); n > longParts/10 {
					t.Errorf("%d parts of %d were made before anything was read", n, longParts)
				}
				got, err := http.ReadResponse(bufio.NewReader(here), nil)
				if err != nil {
					t.Fatal(err)
				}
				var from io.Reader = got.Body
				if x.packed == "gzip" {
					if from, err = gzip.NewReader(from); err != nil {
						t.Fatal(err)
					}
				}
				text, err := io.ReadAll(from)
				if _, rest := io.ReadAll(got.Body); x.breaks && rest == nil || !x.breaks && err != nil {
					t.Errorf("the end: %v, %v", err, rest)
				}
				var list struct {
					Jobs []struct {
						ID int64 `json:"job_id" yaml:"job_id"`
					}
					Errors []struct{ Description string }
				}
				read := json.Unmarshal
				if x.accept == mimeYAML {
					read = yaml.Unmarshal
				}
				if err := read(text, &list); err != nil {
					t.Fatalf("%v: ...%.200s", err, text[max(0, len(text)-200):])
				}
				n := longParts * longPart
				if x.breaks {
					n /= 2
				}
				if len(list.Jobs) != n || list.Jobs[n-1].ID != int64(n) {
					t.Errorf("%d jobs, want %d", len(list.Jobs), n)
				}
				if x.breaks != (len(list.Errors) == 1 && strings.Contains(list.Errors[0].Description, "gdbd is gone")) {
					t.Errorf("errors: %v", list.Errors)
				}
			})
		})
	}
}

// TestHeld: what a user's answers are made of has a bound; others' have theirs, and one answer may be as large as it
// is.
func TestHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{held: newHeld()}
		of := func(uid uint32) *request {
			return &request{ctx: t.Context(), s: s, who: &proto.Caller{UID: uid}, held: heldOfUser(uid)}
		}
		first, second, other := of(1), of(1), of(2)
		if err := first.holds(2 * heldOfOne); err != nil {
			t.Fatal(err)
		}
		if err := second.holds(10 << 10); err != nil {
			t.Error("a small one:", err)
		}
		if err := other.holds(1 << 20); err != nil {
			t.Error("another user:", err)
		}
		done := make(chan error, 1)
		go func() { done <- second.holds(1 << 20) }()
		synctest.Wait()
		if len(done) > 0 {
			t.Error("a second large one went in")
		}
		first.held.free()
		if err := <-done; err != nil {
			t.Error("after the first one:", err)
		}
		if err := first.holds(2 * heldOfOne); asFault(err, "").Status != http.StatusServiceUnavailable {
			t.Error("one too many:", err)
		}
	})
}
