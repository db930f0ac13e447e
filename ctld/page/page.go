package page

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"gbatch/ctld/rest"
	"gbatch/internal/cli/env"
	"gbatch/internal/jobtext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
	"gbatch/internal/rpc/share"
)

// Options make a Page.
type Options struct {
	Cluster rest.Cluster
	Path    string // below which a proxy has it: "" or /some/path
	Name    string // of this controller
	Log     *slog.Logger
}

// Page is one controller's pages.
type Page struct {
	o      Options
	own    [32]byte // makes the words that forms of this process's readers have
	forged *http.CrossOriginProtection
	open   share.Seats
	logins share.Budget // forms of people who are unknown yet
	kept   kept
}

//go:embed assets
var files embed.FS

var templates = template.Must(template.New("").Funcs(functions).ParseFS(files, "assets/*.html"))

// New makes the pages.
func New(o *Options) *Page {
	p := &Page{o: *o, open: share.Seats{All: maxStreams},
		logins: share.Budget{Total: allLogins, Requests: loginsOf}, forged: http.NewCrossOriginProtection()}
	_, _ = rand.Read(p.own[:]) // it never fails
	return p
}

// Limits.
const (
	maxForm   = 5 << 20          // bytes of a form: a script may have 4 MiB
	maxLogin  = 8 << 10          // of one with a token, which has to fit into a cookie
	allLogins = 2 << 20          // of those that are being read, of people who are unknown yet
	loginsOf  = 16               // forms of one host that are being read
	maxRows   = 200              // rows of a list on one page
	maxNodes  = 4096             // nodes in the picture of GPUs
	loginWait = 2 * time.Second  // for others of them
	loginTime = 10 * time.Second // to send one
	cacheTime = "public, max-age=3600"
)

// view is one page.
type view struct {
	path, title, template string
	tab                   string // its name in the bar at the top; "": it is not there
	fill                  func(q *request) (any, error)
}

// views are all pages, in the bar's order.
func views() []view {
	return []view{
		{"/", "My jobs", "myjobs", "My jobs", myJobs},
		{"/gpus", "GPUs", "gpus", "GPUs", gpus},
		{"/queue", "Queue", "queue", "Queue", queue},
		{"/shares", "Fair share", "shares", "Fair share", shares},
		{"/timeline", "Timeline", "timeline", "Timeline", timeline},
		{"/operators", "Operators", "operators", "Operators", operators},
		{"/submit", "Submit a job", "submit", "", submitForm},
		{"/job", "Job", "job", "", oneJob},
		{"/node", "Node", "node", "", oneNode},
		{"/ended", "My jobs of the last days", "ended", "", ended},
	}
}

// viewAt finds the page of a path, and what follows its name; nil: there is none.
func viewAt(at string) (v *view, rest string) {
	for _, x := range views() {
		rest, below := strings.CutPrefix(at, x.path+"/")
		if at == x.path || below && (x.path == "/job" || x.path == "/node") {
			return &x, rest
		}
	}
	return nil, ""
}

// request is one request of a reader.
type request struct {
	p    *Page
	ctx  context.Context
	w    http.ResponseWriter
	r    *http.Request
	who  *proto.Caller
	word string // what its forms have to send
	rest string // what follows the view's path: /job/REST
	age  time.Duration
	note string // about the page as a whole
	name string // of this very page, for the window's title
	now  model.Time
	at   jobtext.Times
}

// Owns reports whether a path is one of this package's; it is without the proxy's prefix.
func (p *Page) Owns(at string) bool {
	if at == "" || at == "/" {
		return true
	}
	head, _, _ := strings.Cut(at[1:], "/")
	switch head {
	case "login", "logout", "act", "live", "why", "gpus.json", "assets", "favicon.ico":
		return true
	}
	v, _ := viewAt("/" + head)
	return v != nil
}

// ServeHTTP answers a request for a path that this package owns.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	at := r.URL.Path
	if rest, cut := strings.CutPrefix(at, p.o.Path); cut && p.o.Path != "" {
		at = rest
	}
	if at == "" {
		at = "/"
	}
	if file, asset := strings.CutPrefix(at, "/assets/"); asset {
		p.asset(w, r, file)
		return
	}
	if at == "/favicon.ico" {
		p.asset(w, r, "icon.svg")
		return
	}
	q := &request{p: p, ctx: r.Context(), w: w, r: r, now: p.o.Cluster.Facts().Now,
		at: jobtext.Times{Now: time.Now(), Form: "relative"}}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost {
		h.Set("Allow", "GET, HEAD, POST")
		q.fail(http.StatusMethodNotAllowed, "Pages are read with GET, and their forms are sent with POST.")
		return
	}
	if r.Method == http.MethodPost {
		if err := p.forged.Check(r); err != nil {
			q.fail(http.StatusForbidden, "This form came from another site, so nothing was done.")
			return
		}
	}
	if at == "/login" {
		q.comeIn()
		return
	}
	if err := q.signedIn(); err != nil {
		q.turnAway(err)
		return
	}
	leave, err := p.o.Cluster.Admit(q.ctx, q.who.UID, rest.RoomClaim(r, maxForm))
	if err != nil {
		q.failed(err)
		return
	}
	if !q.readForm(maxForm) {
		leave()
		return
	}
	if at == "/live" {
		leave() // a stream holds its place among the streams, not among the requests
		q.live()
		return
	}
	defer leave()
	q.serve(at)
}

// comeIn reads the form of somebody who has not signed in. Few are read at a time: nobody knows whose they are.
func (q *request) comeIn() {
	if q.r.Method == http.MethodPost {
		host := server.Host(q.r.RemoteAddr) // "": of the unix socket
		leave, err := q.p.logins.Enter(q.ctx, share.Claim{Payer: "host " + host, Bytes: maxLogin, Patience: loginWait})
		if err != nil {
			q.failed(err)
			return
		}
		defer leave()
		_ = http.NewResponseController(q.w).SetReadDeadline(time.Now().Add(loginTime)) // else it has the server's
	}
	if q.readForm(maxLogin) {
		q.login()
	}
}

// readForm reads what a form has sent, most bytes at most: of who has not signed in no more than a token. It reports
// whether it could; if not, that is answered.
func (q *request) readForm(most int64) bool {
	if q.r.Method != http.MethodPost {
		return true
	}
	q.r.Body = http.MaxBytesReader(q.w, q.r.Body, most)
	if err := q.r.ParseForm(); err != nil {
		q.fail(http.StatusRequestEntityTooLarge, "The form can't be read: it is damaged or too large.")
		return false
	}
	return true
}

// serve answers a reader who has signed in.
func (q *request) serve(at string) {
	if q.r.Method == http.MethodPost {
		if !q.ours() {
			q.fail(http.StatusForbidden, "This form is out of date, so nothing was done. Reload the page and send it again.")
			return
		}
		switch at {
		case "/logout":
			q.logout()
		case "/act":
			q.act()
		case "/submit":
			q.submit()
		default:
			q.fail(http.StatusMethodNotAllowed, "Nothing is sent here.")
		}
		return
	}
	switch at {
	case "/why":
		q.why()
		return
	case "/gpus.json":
		q.gpuData()
		return
	}
	v, rest := viewAt(at)
	if v == nil {
		q.fail(http.StatusNotFound, "There is no page "+at+".")
		return
	}
	q.rest = rest
	data, err := v.fill(q)
	if err != nil {
		q.failed(err)
		return
	}
	q.show(v, http.StatusOK, data)
}

// shell is what surrounds a view.
type shell struct {
	Title, Cluster, User, Base, Word string
	Views                            []view
	View                             *view
	Body                             template.HTML // a template has made it
	Note                             string
	Said, Wrong                      string
	Local                            bool
	Zone                             string
	Offset                           int // of the zone, minutes
}

func (v view) Path() string  { return v.path }
func (v view) Tab() string   { return v.tab }
func (v view) Title() string { return v.title }

// page is what each view's template gets.
type page struct {
	Base, Word string
	User       string
	Now        model.Time
	Q          url.Values // the address's own parameters
	D          any
}

// show writes a view; asked for a part, only what is inside of the shell.
func (q *request) show(v *view, status int, data any) {
	facts := q.p.o.Cluster.Facts()
	s := shell{Title: cmp.Or(q.name, v.title), Cluster: facts.Config().Cluster, Base: q.p.o.Path, Word: q.word, View: v,
		Note: q.note}
	for _, x := range views() {
		if x.tab != "" {
			s.Views = append(s.Views, x)
		}
	}
	if q.who != nil {
		s.User = q.who.User
		_, err := q.r.Cookie(cookieName)
		s.Local = err != nil
	}
	if facts.Leaderless && q.age > 0 {
		s.Note = "No controller leads: this is what controller " + q.p.o.Name + " knew " +
			q.age.Round(time.Second).String() + " ago. " + s.Note
	}
	s.Said, s.Wrong = q.told(saidParam), q.told(wrongParam)
	s.Zone, s.Offset = q.at.Now.Zone()
	s.Offset /= 60
	var body, out bytes.Buffer
	d := page{Base: q.p.o.Path, Word: q.word, User: s.User, Now: q.now, Q: q.r.URL.Query(), D: data}
	err := templates.ExecuteTemplate(&body, v.template+".html", &d)
	if err == nil && q.r.Header.Get("X-Part") != "" {
		out = body
	} else if err == nil {
		s.Body = template.HTML(body.String()) // of a template
		err = templates.ExecuteTemplate(&out, "shell.html", &s)
	}
	if err != nil {
		q.p.o.Log.Error("a page can't be written", "page", v.path, "err", err)
		http.Error(q.w, "Internal error; the controller's log says more", http.StatusInternalServerError)
		return
	}
	if err := rest.Moves(q.ctx, q.who, out.Len()); err != nil {
		status, text := rest.StatusOf(err)
		http.Error(q.w, text, status)
		return
	}
	q.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	q.w.Header().Set("Content-Length", fmt.Sprint(out.Len()))
	q.w.WriteHeader(status)
	if q.r.Method != http.MethodHead {
		_, _ = out.WriteTo(q.w) // who has gone needs no answer
	}
}

// fail answers with one sentence.
func (q *request) fail(status int, text string) {
	head := map[int]string{http.StatusNotFound: "Nothing is there", http.StatusForbidden: "That is not allowed",
		http.StatusServiceUnavailable: "No answer at present"}[status]
	head = cmp.Or(head, "That did not work")
	q.name = ""
	q.show(&view{title: head, template: "failed"}, status, pair{head, text})
}

// failed answers with what an error says.
func (q *request) failed(err error) {
	var said *rpc.Error
	status := http.StatusServiceUnavailable
	text := env.Text(err)
	if errors.As(err, &said) {
		switch said.Code {
		case proto.CodeInvalidJob:
			status = http.StatusNotFound
		case proto.CodeAccess:
			status = http.StatusForbidden
		case proto.CodeBadRequest:
			status = http.StatusBadRequest
		}
	}
	q.fail(status, text)
}

// goTo sends the reader to another page.
func (q *request) goTo(at string) {
	http.Redirect(q.w, q.r, q.p.o.Path+at, http.StatusSeeOther)
}

// The sentence about what a reader has just done is in the address of the page that follows, sealed: nobody else can
// make a page say something.
const (
	saidParam, wrongParam, sealParam = "said", "wrong", "seal"

	maxSaid = 600
)

// tell sends the reader to a page that begins with a sentence.
func (q *request) tell(at, param, sentence string) {
	if len(sentence) > maxSaid {
		sentence = strings.ToValidUTF8(sentence[:maxSaid], "") + " ..."
	}
	set := url.Values{param: {sentence}, sealParam: {sealed(q.word, param+sentence)}}
	mark := "?"
	if strings.Contains(at, "?") {
		mark = "&"
	}
	q.goTo(at + mark + set.Encode())
}

// told gives that sentence.
func (q *request) told(param string) string {
	set := q.r.URL.Query()
	text := set.Get(param)
	if text == "" || q.word == "" || set.Get(sealParam) != sealed(q.word, param+text) {
		return ""
	}
	return text
}

// asset serves a file of style or script.
func (p *Page) asset(w http.ResponseWriter, r *http.Request, name string) {
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
		".svg": "image/svg+xml"}
	kind := kinds[path.Ext(name)]
	data, err := files.ReadFile("assets/" + path.Base(name))
	if err != nil || kind == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", cacheTime)
	if r.URL.Query().Get("v") != version() {
		w.Header().Set("Cache-Control", "no-cache")
	}
	w.Header().Set("ETag", `"`+version()+`"`)
	if r.Header.Get("If-None-Match") == `"`+version()+`"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(data) // who has gone needs no answer
}
