package devcluster_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"gbatch/dbd/history"
	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// pages are all views, with an address below each that has one.
var pages = []string{"/", "/gpus", "/gpus?by=user", "/queue", "/shares", "/timeline",
	"/timeline?gpus=1&nodes=1&time=30",
	"/operators", "/submit", "/job/1", "/node/n1", "/ended"}

// hostile are names that would be more than text on a page that writes them carelessly.
var hostile = []string{`<script>document.title='pwned'</script>`, `"><img src=x onerror=document.title='pwned'>`,
	`' onmouseover='document.title="pwned"`, `{{.D}}</td></table><svg onload=document.title='pwned'>`,
	`javascript:alert(1)`}

// pageUser is a reader on the unix socket.
type pageUser struct {
	*web
	word string
}

var wordIn = regexp.MustCompile(`data-word="([0-9a-f]{32})"`)

func readPages(t *testing.T, c *devcluster.Cluster) *pageUser {
	u := &pageUser{web: newWeb(t, c, "ctl1")}
	u.c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	until := time.Now().Add(20 * time.Second)
	for ; u.word == "" && time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		_, _, text := u.do("GET", "/", "")
		if m := wordIn.FindStringSubmatch(text); m != nil {
			u.word = m[1]
		}
	}
	if u.word == "" {
		t.Fatal("the page has no word for its forms")
	}
	return u
}

// send sends a form; headers are names and values in turn.
func (u *pageUser) send(path string, form url.Values, headers ...string) (status int, text string) {
	u.t.Helper()
	headers = append([]string{"Content-Type", "application/x-www-form-urlencoded"}, headers...)
	status, _, text = u.do("POST", path, form.Encode(), headers...)
	return status, text
}

func (u *pageUser) submit(name, script string, more ...string) {
	u.t.Helper()
	form := url.Values{"word": {u.word}, "job-name": {name}, "script": {"#!/bin/sh\n" + script}, "directory": {"/tmp"},
		"options": {"--output=/dev/null " + strings.Join(more, " ")}}
	if status, text := u.send("/submit", form); status != http.StatusSeeOther {
		u.t.Fatalf("submission of %q: %d %s", name, status, text)
	}
}

// wait reads a page until it has a text.
func (u *pageUser) wait(path, want string) {
	u.t.Helper()
	text := ""
	for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		if _, _, text = u.do("GET", path, ""); strings.Contains(text, want) {
			return
		}
	}
	u.t.Fatalf("%s never has %q: %s", path, want, text)
}

// The pages show what users wrote as text, take forms of their own only, and their cookie counts nowhere else.
func TestPages(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{Nodes: 2, Gres: "gpu:a100:2", HTTP: true})
	u := readPages(t, c)
	u.submit("first", "sleep 300\n", "--gpus=1", "--time=30")
	for _, name := range hostile {
		u.submit(name, "true\n", "--hold", "--comment='"+strings.ReplaceAll(name, "'", "")+"'")
	}
	u.wait("/job/1", "running")
	for _, path := range pages {
		status, _, text := u.do("GET", path, "")
		if status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, text)
		}
		for _, bad := range []string{"<script>document", "<img", "onmouseover='", "<svg onload", "ZgotmplZ", "<no value>"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %s", path, bad)
			}
		}
	}
	t.Run("headers", func(t *testing.T) { pageHeaders(t, u) })
	t.Run("missing", func(t *testing.T) { missingPages(t, u) })
	t.Run("forged", func(t *testing.T) { forgedForms(t, u) })
	t.Run("token", func(t *testing.T) { pageToken(t, u) })
	do := func(what, job, want string) {
		t.Helper()
		form := url.Values{"word": {u.word}, "do": {what}, "job": {job}, "more": {"30"}, "back": {"/"}}
		if status, text := u.send("/act", form); status != http.StatusSeeOther {
			t.Fatalf("%s of job %s: %d %s", what, job, status, text)
		}
		u.wait("/job/"+job, want)
	}
	do("release", "2", "COMPLETED")
	do("cancel", "3", "CANCELLED")
	do("extend", "1", "<dd>1:00:00</dd>")
	do("requeue", "1", "earlier start")
	do("cancel", "1", "CANCELLED")

	// The button of tasks that wait is not about the one that runs.
	u.submit("tasks", "sleep 300\n", "--array=1-3%1", "--time=30")
	u.wait("/", `_[2-3]">`)
	_, _, text := u.do("GET", "/", "")
	m := regexp.MustCompile(`name="job" value="(\d+)_\[2-3\]"`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no button is about tasks 2 and 3: %s", text)
	}
	u.wait("/job/"+m[1]+"_1", "running")
	form := url.Values{"word": {u.word}, "do": {"cancel"}, "job": {m[1] + "_[2-3]"}, "back": {"/"}}
	if status, text := u.send("/act", form); status != http.StatusSeeOther {
		t.Fatalf("%d %s", status, text)
	}
	u.wait("/job/"+m[1]+"_3", "CANCELLED")
	u.wait("/job/"+m[1]+"_1", "running")
}

func pageHeaders(t *testing.T, u *pageUser) {
	r, err := u.c.Get("http://localhost/operators")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	csp := r.Header.Get("Content-Security-Policy")
	if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") ||
		!strings.Contains(csp, "frame-ancestors 'none'") || r.Header.Get("X-Frame-Options") != "DENY" {
		t.Errorf("headers: %v", r.Header)
	}
	if body, err := io.ReadAll(r.Body); err != nil || regexp.MustCompile(`\sstyle=|\son[a-z]+=|https?://`).Match(body) {
		t.Errorf("something inline, or from elsewhere: %v %s", err, body)
	}
	for path, want := range map[string]int{"/assets/../page.go": 404, "/assets/shell.html": 404, "/assets/page.css": 200,
		"/gpus/x": 404, "/job/x": 404, "/job/99999": 404, "/nothing": 404, "/node/n9": 404, "/node/n1": 200} {
		if status, _, _ := u.do("GET", path, ""); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
}

// missingPages: whoever reads with a browser is told what there is not, on a page.
func missingPages(t *testing.T, u *pageUser) {
	for path, want := range map[string]string{"/nope": "There is no page /nope", "/job/99999": "no job 99999",
		"/node/n9": "There is no node n9", "/queue?user=nosuch": "There is no user nosuch",
		"/queue?partition=nope": "There is no partition nope"} {
		_, _, text := u.do("GET", path, "", "Accept", "text/html")
		if !strings.Contains(text, want) || !strings.Contains(text, "<nav") {
			t.Errorf("%s has no %q: %s", path, want, text)
		}
	}
}

func forgedForms(t *testing.T, u *pageUser) {
	form := url.Values{"do": {"cancel"}, "job": {"1"}, "back": {"//elsewhere.example/"}}
	worded := url.Values{"word": {u.word}, "do": {"cancel"}, "job": {"1"}}
	for what, x := range map[string]struct {
		form    url.Values
		headers []string
	}{
		"without a word": {form, nil}, "with a wrong word": {url.Values{"word": {strings.Repeat("0", 32)}}, nil},
		"of another site":   {worded, []string{"Sec-Fetch-Site", "cross-site"}},
		"of another origin": {worded, []string{"Origin", "https://elsewhere.example"}},
	} {
		if status, text := u.send("/act", x.form, x.headers...); status != http.StatusForbidden {
			t.Errorf("a form %s: %d %s", what, status, text)
		}
	}
	r, err := http.NewRequest("GET", "http://elsewhere.example/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := u.c.Do(r); err != nil || got.StatusCode != http.StatusForbidden {
		t.Errorf("another site's name for this socket: %v %v", got, err)
	} else {
		_ = got.Body.Close()
	}
	big := url.Values{"word": {u.word}, "script": {strings.Repeat("x", 6<<20)}}
	if status, _ := u.send("/submit", big); status != http.StatusRequestEntityTooLarge {
		t.Errorf("a form of 6 MiB: %d", status)
	}
	u.wait("/job/1", "running")
}

func pageToken(t *testing.T, u *pageUser) {
	status, text := u.send("/login", url.Values{"token": {"eyJhbGciOiJub25lIn0.e30."}})
	if status != http.StatusForbidden {
		t.Errorf("a token without a signature: %d %s", status, text)
	}
	r, err := http.NewRequest("GET", "http://localhost/slurm/v0.0.44/ping", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Cookie", "gbatch_token=nonsense")
	got, err := u.c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = got.Body.Close()
	if got.StatusCode != http.StatusOK { // the socket's own user: the cookie says nothing there
		t.Errorf("a cookie changes what REST answers: %d", got.StatusCode)
	}
	if status, _, text := u.do("GET", "/", "", "Cookie", "gbatch_token=nonsense"); status != http.StatusSeeOther {
		t.Errorf("a cookie that is no token: %d %s", status, text)
	}
}

// Each view in a browser, at three widths: nothing complains, nothing is wider than the window, and buttons do
// what they say. With GBATCH_SHOTS=DIR it leaves pictures there, to be looked at.
func TestPagesInBrowser(t *testing.T) {
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium here: apt-get install chromium fonts-dejavu-core")
	}
	c := devcluster.Start(t, devcluster.Options{Nodes: 2, Gres: "gpu:a100:2", HTTP: true})
	oneDay(t, c)
	u := readPages(t, c)
	u.submit("train", "seq -f 'epoch %g, loss 0.31' 40\nsleep 300\n", "--gpus=2", "--time=30",
		"--output="+filepath.Join(c.Dir, "train-%j.out"))
	u.submit("sweep", "sleep 300\n", "--nodes=2", "--gpus-per-node=2", "--time=60")
	for _, name := range hostile {
		u.submit(name, "true\n", "--hold")
	}
	u.wait("/job/1", "running")
	b := newBrowser(t, chromium, c)
	for _, width := range []int64{375, 768, 1280, 1920} {
		for _, path := range pages {
			b.look(width, path)
		}
	}
	b.acts()
	if len(b.wrong) > 0 {
		t.Errorf("the console has: %s", strings.Join(b.wrong, "\n"))
	}
}

// oneDay gives gdbd a day of samples, in which job 1 has run.
func oneDay(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	c.StopDaemon("dbd")
	s, err := history.Open(filepath.Join(c.Dir, "state", "dbd", history.FileName), slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for m := int64(23 * 60); m >= -8; m-- { // also while the test looks
		if m > 60 && m%5 != 0 {
			continue
		}
		wave := 50 + int64(40*math.Sin(float64(m)/90))
		list := []proto.Sample{{Of: proto.HistoryCluster, Values: []int64{wave / 10, wave * 3, 2, wave / 25, wave, 8, 4}},
			{Of: proto.HistoryJob, Name: "1", Values: []int64{wave * 2, 1000 + wave*10, wave, 20_000 + wave*100,
				wave * 60, 0}}}
		for i := range int64(2) {
			list = append(list, proto.Sample{Of: proto.HistoryGPU, Name: fmt.Sprintf("n1/%d", i),
				Values: []int64{max(0, wave-i*30), 10_000 + wave*50, wave * 30, 40 + wave/5, 1, 0}})
		}
		if err := s.Put(&proto.Samples{At: model.Time(time.Now().UnixMilli() - m*60_000), List: list}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c.StartDaemon("dbd")
}

// browser is a Chromium that reads a controller's pages.
type browser struct {
	t   testing.TB
	ctx context.Context
	url string

	mu    sync.Mutex
	wrong []string
}

func newBrowser(t testing.TB, chromium string, c *devcluster.Cluster) *browser {
	socket := filepath.Join(c.Dir, "run", "http-ctl1")
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}, Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "x", r.In.Host }}
	s := httptest.NewServer(proxy)
	t.Cleanup(s.Close)
	t.Cleanup(s.CloseClientConnections)
	opts := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(chromium), chromedp.NoSandbox,
		chromedp.Flag("disable-dev-shm-usage", true))
	ctx, stop := chromedp.NewExecAllocator(context.Background(), opts...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx, chromedp.WithErrorf(func(string, ...any) {})) // of events newer than its tables
	t.Cleanup(stop)
	ctx, stop = context.WithTimeout(ctx, 8*time.Minute)
	t.Cleanup(stop)
	b := &browser{t: t, ctx: ctx, url: strings.Replace(s.URL, "127.0.0.1", "localhost", 1)}
	chromedp.ListenTarget(ctx, func(ev any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := ev.(type) {
		case *runtime.EventConsoleAPICalled:
			for _, a := range e.Args {
				b.wrong = append(b.wrong, fmt.Sprint(e.Type, " ", string(a.Value)))
			}
		case *runtime.EventExceptionThrown:
			b.wrong = append(b.wrong, e.ExceptionDetails.Text)
		case *page.EventJavascriptDialogOpening:
			go func() { _ = chromedp.Run(ctx, page.HandleJavaScriptDialog(true)) }() // it ends with the browser
		}
	})
	return b
}

func (b *browser) run(what string, list ...chromedp.Action) {
	b.t.Helper()
	if err := chromedp.Run(b.ctx, list...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// look opens a page, and checks what every page has to hold.
func (b *browser) look(width int64, path string) {
	b.t.Helper()
	var over int
	var title string
	var nameless []string
	b.run(path, chromedp.EmulateViewport(width, 900), chromedp.Navigate(b.url+path), chromedp.WaitVisible("#main"),
		chromedp.Evaluate("document.documentElement.scrollWidth - innerWidth", &over), chromedp.Title(&title),
		chromedp.Evaluate(`[...document.querySelectorAll("button,a,input,select,textarea,canvas,svg[role=img]")]
			.filter(e => e.type !== "hidden" && !(e.getAttribute("aria-label") || e.textContent.trim() ||
				e.labels && e.labels.length)).map(e => e.outerHTML)`, &nameless))
	if over > 0 || title == "pwned" || len(nameless) > 0 {
		b.t.Errorf("%s at %d: wider by %d, title %q, without a name for screen readers: %q", path, width, over,
			title, nameless)
	}
	if path == "/gpus" || path == "/queue" || path == "/job/1" || path == "/node/n1" || path == "/" {
		b.run(path+" draws what was measured", chromedp.WaitVisible("svg.spark"))
	}
	b.shows(width, path)
	if path == "/job/1" {
		b.run(path+" has the end of the output", chromedp.WaitVisible(".tail"))
	}
	if strings.HasPrefix(path, "/gpus") {
		b.run(path, chromedp.Poll(`document.querySelector("canvas").dataset.cells === "4"`, nil))
	}
	dir := os.Getenv("GBATCH_SHOTS")
	for _, look := range []string{"light", "dark"} {
		if dir == "" {
			break
		}
		var shot []byte
		b.run(path, emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: look}}), chromedp.FullScreenshot(&shot, 100))
		name := strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(path, "-"), "-")
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d-%s.png", name, width, look)), shot, 0o600); err != nil {
			b.t.Error(err)
		}
	}
}

// shows checks what a page says at a width: headings, or names beside the values, and what a chart says of a point.
func (b *browser) shows(width int64, path string) {
	b.t.Helper()
	var lost []string
	b.run(path+" names its values", chromedp.Evaluate(`[...document.querySelectorAll("table.list")].flatMap(t =>
		getComputedStyle(t.tHead).display !== "none" ? [] : [...t.querySelectorAll("tbody tr:first-child td:nth-child(n+2)")]
			.filter(d => d.textContent.trim() && !d.dataset.label && !d.matches(".st,.end")).map(d => d.outerHTML))`, &lost))
	var heads bool
	b.run(path, chromedp.Evaluate(`[...document.querySelectorAll("table.list")].every(t =>
		getComputedStyle(t.tHead).display !== "none")`, &heads))
	if len(lost) > 0 || width >= 768 && !heads {
		b.t.Errorf("%s at %d: headings %v, values without a name: %q", path, width, heads, lost)
	}
	if path == "/job/1" {
		var text string
		b.run("a chart says what stands at a point", chromedp.Focus(".plot svg"), chromedp.KeyEvent(kb.End),
			chromedp.Text(".plot output", &text))
		if !strings.Contains(text, "\u00a0%") {
			b.t.Errorf("at the end of the chart: %q", text)
		}
	}
	if path == "/" {
		var right, left float64
		b.run("the bar at the top is as wide as the page", chromedp.Evaluate(
			`document.querySelector(".brand").getBoundingClientRect().left`, &left), chromedp.Evaluate(
			`document.querySelector("dl.figures").getBoundingClientRect().left`, &right))
		if math.Abs(left-right) > 1 {
			b.t.Errorf("at %d the bar at the top begins at %v, the page at %v", width, left, right)
		}
	}
}

// acts presses buttons.
func (b *browser) acts() {
	has := func(row, text string) chromedp.Action {
		return chromedp.Poll(fmt.Sprintf(`(document.querySelector('tr[data-key="%s"]') || {textContent: ""})`+
			`.textContent.includes(%q)`,
			row, text), nil, chromedp.WithPollingTimeout(20*time.Second))
	}
	b.run("why", chromedp.EmulateViewport(1440, 900), chromedp.Navigate(b.url+"/"), has("2", "needs"))
	b.run("hold", chromedp.Click(`button[aria-label="Hold job 2"]`), has("2", "held"))
	b.run("release", chromedp.Click(`button[aria-label="Release job 2"]`), has("2", "pending"))
	// A dialog of its own has ended the browser on a busy machine.
	b.run("answers", chromedp.Evaluate(`window.confirm = text => !!(window.asked = text)`, nil))
	b.run("cancel", chromedp.Click(`button[aria-label="Cancel job 1"]`), has("1", "cancelled"),
		chromedp.Poll(`!!window.asked`, nil))
	b.run("the page follows", has("2", "running"))
	var text string
	b.run("submit", chromedp.Navigate(b.url+"/submit"), chromedp.SetValue("#f-job-name", "of-a-form"),
		chromedp.SetValue("#f-options", "--output=/dev/null --hold"), chromedp.Submit("form.card"),
		chromedp.WaitVisible("#said .good"), chromedp.Text("body", &text))
	if !strings.Contains(text, "is in the queue") || !strings.Contains(text, "of-a-form") {
		b.t.Errorf("after the form: %s", text)
	}
}
