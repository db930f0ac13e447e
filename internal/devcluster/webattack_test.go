package devcluster_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"gbatch/internal/devcluster"
	"gbatch/internal/proto"
)

// madeToken signs a token as any program could; alg none has no signature.
func madeToken(key, alg, body string) string {
	b64 := base64.RawURLEncoding.EncodeToString
	text := b64([]byte(`{"alg":"`+alg+`","typ":"JWT"}`)) + "." + b64([]byte(body))
	if alg == "none" {
		return text + "."
	}
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte(text))
	return text + "." + b64(m.Sum(nil))
}

// tcp is a client of a controller's HTTP port.
type tcp struct {
	t    *testing.T
	c    http.Client
	base string
}

func (x *tcp) do(method, path string, form url.Values, headers ...string) (*http.Response, string) {
	x.t.Helper()
	r, err := http.NewRequest(method, x.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		x.t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	got, err := x.c.Do(r)
	if err != nil {
		x.t.Fatal(err)
	}
	defer got.Body.Close() //nolint:errcheck // only read
	b, err := io.ReadAll(got.Body)
	if err != nil {
		x.t.Fatal(err)
	}
	return got, string(b)
}

// TestWebAttacks: what strangers, thieves of tokens and slow or very many clients do to the HTTP port leaves everybody
// else alone.
func TestWebAttacks(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{HTTP: true, Nodes: 1, NoDbd: true})
	addr := c.HTTPAddr["ctl1"]
	x := &tcp{t: t, base: "http://" + addr}
	x.c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(x.c.CloseIdleConnections)
	slow := slowClients(t, addr)
	var r proto.TokenReply
	if err := c.Client().Call(proto.KindToken, &proto.TokenRequest{}, &r); err != nil {
		t.Fatal(err)
	}
	t.Run("tokens", func(t *testing.T) { wrongTokens(t, x, r.Token) })
	t.Run("unsigned forms", func(t *testing.T) { unsignedForms(t, x, addr) })
	t.Run("sign in", func(t *testing.T) { signIn(t, x, r.Token) })
	t.Run("streams", func(t *testing.T) { manyStreams(t, x, r.Token) })
	t.Run("connections", func(t *testing.T) { manyConnections(t, c, addr) })
	t.Run("revoked", func(t *testing.T) { // a token that was good counts no more, wherever it is shown again
		var done proto.EditTokensReply
		if err := c.Client().Call(proto.KindEditTokens, &proto.EditTokensRequest{Revoke: []string{"root"}},
			&done); err != nil {
			t.Fatal(err)
		}
		if got, text := x.do("GET", "/slurm/v0.0.44/jobs/", nil, "X-SLURM-USER-TOKEN", r.Token); got.StatusCode == 200 {
			t.Errorf("after it was revoked: %d %s", got.StatusCode, text)
		}
		got, _ := x.do("GET", "/", nil, "Cookie", "gbatch_token="+r.Token)
		if got.StatusCode != http.StatusSeeOther || !strings.Contains(got.Header.Get("Location"), "/login") {
			t.Errorf("after it was revoked, the page: %d", got.StatusCode)
		}
		if got, _ := x.do("POST", "/login", url.Values{"token": {r.Token}}); got.StatusCode != http.StatusForbidden {
			t.Errorf("after it was revoked, one can sign in: %d", got.StatusCode)
		}
	})
	slow()
}

// wrongTokens shows tokens that are none of this cluster's.
func wrongTokens(t *testing.T, x *tcp, good string) {
	soon := fmt.Sprintf(`{"sun":"root","iat":%d,"exp":%d}`, time.Now().Unix(), time.Now().Unix()+600)
	past := fmt.Sprintf(`{"sun":"root","iat":%d,"exp":%d}`, time.Now().Unix()-600, time.Now().Unix()-60)
	parts := strings.Split(good, ".")
	for name, text := range map[string]string{"alg none": madeToken("", "none", soon),
		"none, signed": madeToken("x", "NONE", soon), "another cluster's": madeToken(strings.Repeat("k", 32), "HS256", soon),
		"signed with nothing": madeToken("", "HS256", soon), "expired": madeToken(strings.Repeat("k", 32), "HS256", past),
		"another user's body": parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(soon)) + "." + parts[2],
		"cut":                 good[:len(good)-2], "long": strings.Repeat("a", 20<<10), "a path": "../../etc/passwd"} {
		for _, header := range []string{"X-SLURM-USER-TOKEN", "Authorization"} {
			value := text
			if header == "Authorization" {
				value = "Bearer " + text
			}
			for _, path := range []string{"/slurm/v0.0.44/jobs/", "/api/v1/tasks", "/api/v1/events"} {
				if got, said := x.do("GET", path, nil, header, value); got.StatusCode < 400 {
					t.Errorf("%s, %s: %d %s", name, path, got.StatusCode, said)
				}
			}
		}
		want := http.StatusForbidden
		if name == "long" {
			want = http.StatusRequestEntityTooLarge
		}
		if got, _ := x.do("POST", "/login", url.Values{"token": {text}}); got.StatusCode != want {
			t.Errorf("%s signs in: %d", name, got.StatusCode)
		}
	}
	if got, said := x.do("GET", "/slurm/v0.0.44/ping/", nil, "X-SLURM-USER-TOKEN", good); got.StatusCode != 200 {
		t.Errorf("the good one: %d %s", got.StatusCode, said)
	}
	for _, headers := range [][]string{{"X-SLURM-USER-NAME", "root"}, {"Cookie", "gbatch_token=" + good}, nil} {
		if got, said := x.do("GET", "/slurm/v0.0.44/jobs/", nil, headers...); got.StatusCode == 200 {
			t.Errorf("with %v: %s", headers, said)
		}
	}
	if got, said := x.do("GET", "/slurm/v0.0.44/jobs/?token="+good, nil); got.StatusCode == 200 {
		t.Errorf("a token in the address counts: %s", said)
	}
	for _, path := range []string{"/assets/../../etc/passwd", "//etc/passwd", "/slurm/v0.0.44/../../api/v1/tasks",
		"/slurm/v0.0.44/job/%2e%2e%2f1", "/%00", "/assets/%2e%2e/page.go"} {
		if got, said := x.do("GET", path, nil); got.StatusCode == 200 || strings.Contains(said, "root:") {
			t.Errorf("%s: %d %s", path, got.StatusCode, said)
		}
	}
}

// unsignedForms: of a form of who has not signed in nothing is read, whatever it promises, and of a token not more than
// one has.
func unsignedForms(t *testing.T, x *tcp, addr string) {
	for _, length := range []string{"Content-Length: 5000000", "Transfer-Encoding: chunked"} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close() //nolint:errcheck // only read
		_, err = fmt.Fprintf(c, "POST /submit HTTP/1.1\r\nHost: %s\r\nContent-Type: application/x-www-form-urlencoded\r\n"+
			"%s\r\n\r\n", addr, length)
		if err == nil {
			err = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		}
		if err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil || !strings.Contains(line, " 401 ") {
			t.Errorf("%s, and nothing of it: %q %v, want 401 at once", length, line, err)
		}
	}
	if got, _ := x.do("POST", "/login", url.Values{"token": {strings.Repeat("a", 64<<10)}}); got.StatusCode !=
		http.StatusRequestEntityTooLarge {
		t.Errorf("a token of 64 KiB: %d", got.StatusCode)
	}
}

// signIn signs in with a token, and tries what another site could make that browser do.
func signIn(t *testing.T, x *tcp, token string) {
	got, _ := x.do("POST", "/login", url.Values{"token": {"SLURM_JWT=" + token}})
	cookies := got.Cookies()
	if got.StatusCode != http.StatusSeeOther || len(cookies) != 1 || !cookies[0].HttpOnly ||
		cookies[0].SameSite != http.SameSiteStrictMode || cookies[0].MaxAge <= 0 {
		t.Fatalf("signing in: %d %v", got.StatusCode, cookies)
	}
	cookie := []string{"Cookie", cookies[0].Name + "=" + cookies[0].Value}
	got, text := x.do("GET", "/", nil, cookie...)
	word := wordIn.FindStringSubmatch(text)
	if got.StatusCode != http.StatusOK || word == nil || !strings.Contains(text, "root") {
		t.Fatalf("signed in: %d %s", got.StatusCode, text)
	}
	job := url.Values{"job-name": {"signed"}, "script": {"#!/bin/sh\ntrue"}, "directory": {"/tmp"},
		"options": {"--hold --output=/dev/null"}}
	if got, _ := x.do("POST", "/submit", job, cookie...); got.StatusCode != http.StatusForbidden {
		t.Errorf("a form without its word: %d", got.StatusCode)
	}
	job.Set("word", word[1])
	for _, more := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Origin", "https://elsewhere.example"}} {
		if got, _ := x.do("POST", "/submit", job, append(more, cookie...)...); got.StatusCode != http.StatusForbidden {
			t.Errorf("a form of another site with the word: %d", got.StatusCode)
		}
	}
	if got, _ := x.do("POST", "/submit", job); got.StatusCode == http.StatusSeeOther &&
		!strings.Contains(got.Header.Get("Location"), "/login") {
		t.Errorf("a form without the cookie: %v", got.Header)
	}
	if got, text := x.do("POST", "/submit", job, cookie...); got.StatusCode != http.StatusSeeOther {
		t.Errorf("its own form: %d %s", got.StatusCode, text)
	}
	got, _ = x.do("POST", "/logout", url.Values{"word": {word[1]}}, cookie...)
	if c := got.Cookies(); len(c) != 1 || c[0].MaxAge >= 0 {
		t.Errorf("signing out: %d %v", got.StatusCode, c)
	}
}

// slowClients begin requests and never end them; the function that it gives waits until all have been cut off.
func slowClients(t *testing.T, addr string) func() {
	t.Helper()
	var all []net.Conn
	for i := range 60 {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		begin := []string{"", "G", "GET / HTTP/1.1\r\nHost: x\r\nX-A", "\x16\x03\x01", "PRI * HTTP/2.0\r\n",
			"POST /api/v1/tasks HTTP/1.1\r\nHost: x\r\nContent-Le"}[i%6]
		if _, err := nc.Write([]byte(begin)); err != nil {
			t.Fatal(err)
		}
		all = append(all, nc)
	}
	return func() {
		for i, nc := range all {
			_ = nc.SetReadDeadline(time.Now().Add(15 * time.Second)) // a failure shows in the read
			if _, err := io.Copy(io.Discard, nc); err != nil {
				t.Errorf("slow client %d still holds its connection: %v", i, err)
			}
			_ = nc.Close()
		}
	}
}

// manyStreams holds all the streams that there may be: they cost little, one more is told why not, and all hear.
func manyStreams(t *testing.T, x *tcp, token string) {
	const streams, each = 1000, 128 << 10
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	open := func() (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, "GET", x.base+"/api/v1/events", nil)
		if err != nil {
			return nil, err
		}
		r.Header.Set("X-SLURM-USER-TOKEN", token)
		return x.c.Do(r)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var bodies []io.ReadCloser
	for range 8 {
		wg.Go(func() {
			for range streams / 8 {
				got, err := open()
				if err == nil && got.StatusCode != http.StatusOK {
					err = fmt.Errorf("%s", got.Status)
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				bodies = append(bodies, got.Body)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	got, err := open()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(got.Body)
	if got.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(text), "too many streams") {
		t.Errorf("one stream too many: %d %s %v", got.StatusCode, text, err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	// Half of it is the clients', which live in this process too.
	if took := int64(after.HeapInuse+after.StackInuse) - int64(before.HeapInuse+before.StackInuse); took > streams*each {
		t.Errorf("%d streams and their clients hold %d KiB each", streams, took/streams>>10)
	} else {
		t.Logf("%d streams and their clients hold %d KiB each", streams, took/streams>>10)
	}
	job := `{"command":"true","options":["--hold"],"environment":{"PATH":"/bin"}}`
	r, err := http.NewRequestWithContext(ctx, "POST", x.base+"/api/v1/tasks", strings.NewReader(job))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-SLURM-USER-TOKEN", token)
	if got, err = x.c.Do(r); err != nil || got.StatusCode != http.StatusCreated {
		t.Fatalf("a task beside them: %v %v", got, err)
	}
	_ = got.Body.Close()
	stop := time.AfterFunc(20*time.Second, cancel)
	defer stop.Stop()
	deaf := 0
	for _, body := range bodies {
		heard := false
		for in := bufio.NewScanner(body); !heard && in.Scan(); {
			heard = strings.Contains(in.Text(), "task_submitted")
		}
		if !heard {
			deaf++
		}
		_ = body.Close()
	}
	if deaf > 0 {
		t.Errorf("%d of %d streams did not hear of a submission", deaf, streams)
	}
}

// manyConnections opens more than there may be. Others still get in at the socket, and at the port once they are gone.
func manyConnections(t *testing.T, c *devcluster.Cluster, addr string) {
	const conns = 2000
	var all []net.Conn
	for range conns {
		nc, err := net.DialTimeout("tcp", addr, 5*time.Second)
		if err != nil {
			t.Fatalf("connection %d: %v", len(all), err)
		}
		all = append(all, nc)
	}
	w := newWeb(t, c, "ctl1")
	begin := time.Now()
	for range 50 {
		w.ok("GET", "/slurm/v0.0.44/ping", "")
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("beside %d connections 50 pings took %v", conns, took)
	}
	refused := 0
	for _, nc := range all {
		_ = nc.SetReadDeadline(time.Now().Add(time.Millisecond)) // a failure shows in the read
		if _, err := nc.Read(make([]byte, 1)); err == io.EOF || err != nil && !isTimeout(err) {
			refused++
		}
		_ = nc.Close()
	}
	if refused == 0 {
		t.Errorf("all of %d connections from one host were taken", conns)
	}
	c.Wait("the port answers again", func() error {
		got, err := http.Get("http://" + addr + "/livez")
		if err == nil {
			err = got.Body.Close()
		}
		return err
	})
}

func isTimeout(err error) bool {
	e, ok := err.(net.Error)
	return ok && e.Timeout()
}
