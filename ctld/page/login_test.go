package page

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"gbatch/ctld/rest"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// nobody is a cluster that knows no token.
type nobody struct{ rest.Cluster }

func (nobody) Facts() rest.Facts { return rest.Facts{View: state.New().View()} }

func (nobody) Token(string) (proto.Caller, error) { return proto.Caller{}, errors.New("no token") }

// slow is a body that never ends. It counts those that are read.
type slow struct {
	reading *atomic.Int32
	end     chan struct{}
	begun   bool
}

func (s *slow) Read([]byte) (int, error) {
	if !s.begun {
		s.begun = true
		s.reading.Add(1)
	}
	<-s.end
	return 0, io.ErrUnexpectedEOF
}

// TestSlowLogins: of forms that people send who have not signed in few are read at a time, of one host fewer still, so
// that they cost little memory; another host's are read meanwhile.
func TestSlowLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := New(&Options{Cluster: nobody{}, Log: slog.New(slog.DiscardHandler)})
		var reading atomic.Int32
		end := make(chan struct{})
		post := func(host string, body io.Reader) int {
			r := httptest.NewRequest(http.MethodPost, "/login", body)
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			r.RemoteAddr = host + ":1000"
			w := httptest.NewRecorder()
			p.ServeHTTP(w, r)
			return w.Code
		}
		const many = 10_000
		ended := make(chan int, many)
		for i := range many {
			host := "192.0.2.1"
			if i >= many/2 {
				host = fmt.Sprintf("198.51.%d.%d", i/250%250, i%250)
			}
			go func() { ended <- post(host, &slow{reading: &reading, end: end}) }()
		}
		synctest.Wait()
		if n := int(reading.Load()); n*maxLogin > allLogins || n < loginsOf {
			t.Errorf("%d forms are read at a time", n)
		}
		close(end)
		for range many {
			<-ended
		}
		reading.Store(0)
		end = make(chan struct{})
		for range loginsOf + 1 {
			go func() { ended <- post("192.0.2.1", &slow{reading: &reading, end: end}) }()
		}
		synctest.Wait()
		if n := reading.Load(); n != loginsOf {
			t.Errorf("of one host %d forms are read, not %d", n, loginsOf)
		}
		if code := post("192.0.2.2", strings.NewReader("token=x")); code != http.StatusForbidden {
			t.Errorf("another host's form is answered %d", code)
		}
		if code := <-ended; code != http.StatusServiceUnavailable {
			t.Errorf("the form that is too many is answered %d", code)
		}
		close(end)
		for range loginsOf {
			<-ended
		}
		if code := post("192.0.2.1", strings.NewReader("token="+strings.Repeat("a", maxLogin))); code !=
			http.StatusRequestEntityTooLarge {
			t.Errorf("a token that is too long is answered %d", code)
		}
	})
}
