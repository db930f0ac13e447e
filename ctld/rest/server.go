package rest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/server"
	"gbatch/internal/rpc/share"
	"gbatch/internal/state"
)

// Config is what the configuration says.
type Config struct {
	conf.HTTP
	Addr   string // host:port; "": no port
	Socket string // path of a unix socket; "": none
}

// Cluster is what the controller does for this package.
type Cluster interface {
	// Facts gives what this controller knows, without asking anybody.
	Facts() Facts
	// Sees names the class of callers who see the same as this one; "": everything.
	Sees(who *proto.Caller) string
	// Account names the account of a user's jobs that name none.
	Account(user string) string
	// MayAsk refuses a kind of request that a user has no right to.
	MayAsk(who *proto.Caller, kind uint16) error
	// MayChange reports whether a user may change a job: its owner, operators, coordinators of its account.
	MayChange(who *proto.Caller, sp *model.Spec) bool
	// Ask makes a request as a command would; each gets each part of the answer, which is its own until it returns. age
	// says how old the facts of the answer are.
	Ask(ctx context.Context, who *proto.Caller, kind uint16, rq proto.Message,
		each func(part []byte) error) (age time.Duration, err error)
	// Admit counts a request against its user's share, and waits for a little while.
	Admit(ctx context.Context, uid uint32, bytes int) (leave func(), err error)
	Callers
}

// wholeKey finds, in a request's context, that its reader takes only the beginning of the answer.
type wholeKey struct{}

// Beginning is for a question of whose answer only the beginning is read: it ends when each part's reader has enough,
// and is not made whole to be shared with others.
func Beginning(ctx context.Context) context.Context { return context.WithValue(ctx, wholeKey{}, true) }

// OnlyBeginning reports whether a question is such a one.
func OnlyBeginning(ctx context.Context) bool { return ctx.Value(wholeKey{}) != nil }

// Callers says who asks.
type Callers interface {
	User(ctx context.Context, name string) (*proto.Caller, error)
	// Person is User for a name, or for a number that is no name.
	Person(ctx context.Context, text string) (*proto.Caller, error)
	// InGroup is a caller with another of his groups, by name or number.
	InGroup(ctx context.Context, who *proto.Caller, group string) (*proto.Caller, error)
	Local(ctx context.Context, u *rpc.User) *proto.Caller
	// Token says for whom a token speaks: User, Less and Via of a caller.
	Token(text string) (proto.Caller, error)
	Trusted(who *proto.Caller) bool
}

// Facts is what a controller knows at one moment.
type Facts struct {
	*state.View
	Now        model.Time
	Leads      bool
	Leaderless bool          // for longer than an election takes
	Age        time.Duration // of the facts
	Stamp      any           // equal stamps: equal lists
}

// Options make a Server.
type Options struct {
	Config
	Cluster     Cluster
	Name        string // of this controller
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Log         *slog.Logger
	Metrics     http.Handler                         // nil: none are served
	Served      func(status int, took time.Duration) // is told of each request but streams; may be nil
	Memory      *share.Memory                        // for what equal requests share; nil: this server's own
	Rooms       []Room
	Pages       Pages // nil: none are served
}

// Pages are what people read. They know their readers by themselves; see package page.
type Pages interface {
	http.Handler
	Owns(path string) bool // the path is without the proxy's prefix
}

// Limits.
const (
	maxHeader    = 64 << 10
	maxBody      = 32 << 20 // of a submission; scripts may have 4 MiB, and max_script_size says more
	maxConns     = 2048     // in all: over TCP, and over the unix socket
	maxConnsOf   = 512      // from one host, or of one user
	maxConnsHere = 1536     // from this host: a proxy stands for many
	maxStreams   = 128      // of one HTTP/2 connection
	headerTime   = 10 * time.Second
	idleTime     = 90 * time.Second
	writeTime    = 30 * time.Second // for a part of an answer
	bodyTime     = 60 * time.Second
	requestTime  = 2 * time.Minute
	stopTime     = 3 * time.Second // for requests under way, when the controller ends
	writeBytes   = 256 << 10
	shareRest    = 3 // a list that many wait for takes a quarter of one CPU
	shareGap     = 20 * time.Millisecond
)

// Server is one controller's HTTP server.
type Server struct {
	o       Options
	http    *http.Server
	port    net.Listener // nil: none
	socket  net.Listener // nil: none
	same    share.Group
	flow    *share.Limits // of bytes
	held    *share.Budget // of what answers are made of
	rows    *rowsKept
	open    conns // of the port
	local   conns // of the unix socket
	routes  *routes
	closing sync.Once
	counts  counts
	begun   int64 // nanoseconds since 1970
}

// New listens. What can't be listened on is an error if nothing is left.
func New(o *Options) (*Server, error) {
	s := &Server{o: *o, routes: newRoutes(), begun: time.Now().UnixNano(), rows: newRowsKept(), flow: newFlow(),
		held: newHeld(), same: share.Group{Rest: shareRest, Gap: shareGap, Memory: o.Memory}}
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug),
		ConnContext:       withPeer,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxStreams},
	}
	s.http.Protocols = new(http.Protocols)
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetHTTP2(true)
	s.http.Protocols.SetUnencryptedHTTP2(true)
	var errs []error
	if o.Addr != "" {
		l, err := s.listen()
		errs = append(errs, err)
		s.port = l
	}
	if o.Socket != "" {
		l, err := server.ListenUnix(o.Socket, 0o666)
		errs = append(errs, err)
		if err == nil {
			s.socket = &localDoor{l, &s.local}
		}
	}
	err := errors.Join(errs...)
	if s.port == nil && s.socket == nil {
		return nil, err
	}
	if err != nil {
		o.Log.Error("HTTP is served in part only", "err", err)
	}
	return s, nil
}

// listen opens the port.
func (s *Server) listen() (net.Listener, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.o.Certificate, NextProtos: []string{"h2",
		"http/1.1"}}
	if s.o.Cert != "" {
		site := &siteCertificate{cert: s.o.Cert, key: s.o.Key}
		if _, err := site.get(nil); err != nil {
			return nil, fmt.Errorf("HttpCertificate: %w", err)
		}
		cfg.GetCertificate = site.get
	}
	l, err := net.Listen("tcp", s.o.Addr)
	if err != nil {
		return nil, fmt.Errorf("HTTP on %s: %w; HttpListen= in gbatch.conf sets the address", s.o.Addr, err)
	}
	mode := s.o.TLS
	if mode == "auto" || mode == "" {
		mode = "yes"
		if a, ok := l.Addr().(*net.TCPAddr); ok && a.IP.IsLoopback() {
			mode = "both"
		}
	}
	return newDoor(l, cfg, mode, &s.open), nil
}

// Addr is the address of the port; nil: there is none.
func (s *Server) Addr() net.Addr {
	if s.port == nil {
		return nil
	}
	return s.port.Addr()
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make(chan error, 2)
	for _, l := range []net.Listener{s.port, s.socket} {
		if l == nil {
			continue
		}
		wg.Go(func() {
			if err := s.http.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
				errs <- err
			}
		})
	}
	s.o.Log.Info("serving HTTP", "addr", s.o.Addr, "socket", s.o.Socket)
	var err error
	select {
	case <-ctx.Done():
	case err = <-errs:
	}
	s.Close()
	wg.Wait()
	return err
}

// Close ends the server. Requests under way get a moment.
func (s *Server) Close() {
	s.closing.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTime)
		defer cancel()
		if err := s.http.Shutdown(ctx); err != nil {
			_ = s.http.Close() // what is left of it
		}
		for _, l := range []net.Listener{s.port, s.socket} {
			if l != nil {
				_ = l.Close() // Shutdown has usually closed it; Run may never have been called
			}
		}
		s.same.Close()
	})
}

// serve is the handler of all requests.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	ctx, stop, more := timed(r.Context())
	defer stop(nil)
	out := &answer{ResponseWriter: w, control: http.NewResponseController(w), stop: stop, more: more}
	defer func() {
		if p := recover(); p != nil {
			s.o.Log.Error("an HTTP request crashed its handler", "path", r.URL.Path, "panic", p, "stack",
				string(debug.Stack()))
			if out.cut = out.status != 0; !out.cut {
				plainText(out, http.StatusInternalServerError, "Internal error; the controller's log says more")
			}
		}
		if s.o.Served != nil && !out.stream {
			s.o.Served(out.status, time.Since(begin))
		}
		if s.o.Log.Enabled(ctx, slog.LevelDebug) { // most often it is not, and the words cost as much as a ping
			s.o.Log.Debug("http", "method", r.Method, "path", r.URL.Path, "status", out.status, "bytes", out.bytes,
				"for", time.Since(begin), "from", r.RemoteAddr)
		}
		if out.cut { // its reader must not take it for a whole one
			_ = out.control.Flush()     // so that its errors are read
			panic(http.ErrAbortHandler) // ends the connection, or the stream
		}
	}()
	_ = out.control.SetReadDeadline(begin.Add(bodyTime)) // a stream without deadlines has its connection's
	h := out.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Server", "gbatch")
	path := r.URL.Path
	for strings.Contains(path, "//") { // of clients whose base address ends with a slash; slurmrestd minds none either
		path = strings.ReplaceAll(path, "//", "/")
	}
	if s.o.Path != "" {
		if rest, cut := strings.CutPrefix(path, s.o.Path); cut && (rest == "" || rest[0] == '/') {
			path = rest
		}
	}
	runtime.Gosched() // behind all that can run now: commands, nodes and the log go before clients over HTTP
	s.route(ctx, out, r, path)
}

// answer is what a request is answered with; it gives each part some time to leave.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	status  int
	bytes   int64
	stream  bool // of events: it lasts as long as its client
	cut     bool // it is not whole

	stop context.CancelCauseFunc // ends the request
	more func(time.Duration)     // gives it more time from now on
}

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status, a.stream = status, a.Header().Get("Content-Type") == "text/event-stream"
		a.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap lets a stream set deadlines of its own, and send what it has.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) Write(b []byte) (n int, err error) {
	if a.status == 0 {
		a.WriteHeader(http.StatusOK)
	}
	for len(b) > 0 && err == nil {
		_ = a.control.SetWriteDeadline(time.Now().Add(writeTime)) // a stream without deadlines has its connection's
		var k int
		k, err = a.ResponseWriter.Write(b[:min(len(b), writeBytes)])
		n, b = n+k, b[k:]
	}
	a.bytes += int64(n)
	return n, err
}

func plainText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text)) // who has gone needs no answer
}

// siteCertificate is a site's own, read again when its file changes.
type siteCertificate struct {
	cert, key string

	mu     sync.Mutex
	looked time.Time
	at     time.Time
	pair   *tls.Certificate
}

const certificatePace = 10 * time.Second

func (c *siteCertificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < certificatePace && c.pair != nil {
		return c.pair, nil
	}
	c.looked = time.Now()
	info, err := os.Stat(c.cert)
	if err == nil && c.pair != nil && info.ModTime().Equal(c.at) {
		return c.pair, nil
	}
	if err == nil {
		key := c.key
		if key == "" {
			key = c.cert
		}
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(c.cert, key); err == nil {
			c.pair, c.at = &pair, info.ModTime()
		}
	}
	if c.pair != nil {
		return c.pair, nil // the one of before goes on
	}
	return nil, err
}
