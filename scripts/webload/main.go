// Command webload asks a controller over HTTP at fixed rates, as scripts/webload.sh needs it: its
// own part of the CPU is small and known, so that what the controller takes can be told from it.
//
//	webload -url http://HOST:PORT -token TOKEN [-ping N] [-jobs N] [-t TIME] [-c CONNECTIONS] [-gzip]
//	webload -burn SHARE [-t TIME]
//
// It prints a line for each kind of request: its name, answers a second, median and 99th percentile
// in ms, failures, bytes of an answer; and a line "cpu" with the seconds of CPU that it took for
// each second. -burn takes as much CPU and asks nothing: that is what submissions are compared
// with.
package main

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	at := flag.String("url", "", "`address` of the controller: http://HOST:PORT")
	token := flag.String("token", "", "`token` of scontrol token")
	pings := flag.Float64("ping", 0, "`number` of GET /slurm/v0.0.44/ping a second")
	jobs := flag.Float64("jobs", 0, "`number` of GET /slurm/v0.0.44/jobs/ a second")
	lasts := flag.Duration("t", 10*time.Second, "`time`")
	conns := flag.Int("c", 64, "`number` of connections for each kind of request")
	gzip := flag.Bool("gzip", false, "take compressed answers")
	burn := flag.Float64("burn", 0, "ask nothing, and take so many `seconds` of CPU a second")
	flag.Parse()
	if *burn > 0 {
		burnCPU(*burn, *lasts)
		return
	}
	u, err := url.Parse(*at)
	if err != nil || u.Host == "" || *token == "" {
		fmt.Fprintln(os.Stderr, "webload: -url and -token are needed; scripts/webload.sh calls this program")
		os.Exit(2)
	}
	l := &load{addr: u.Host, path: u.Path, token: *token, gzip: *gzip, lasts: *lasts, conns: *conns}
	begin, before := time.Now(), cpu()
	kinds := []*kind{{name: "ping", path: "/slurm/v0.0.44/ping", rate: *pings}, {name: "jobs",
		path: "/slurm/v0.0.44/jobs/", rate: *jobs}}
	var wg sync.WaitGroup
	for _, k := range kinds {
		if k.rate > 0 {
			wg.Go(func() { l.run(k) })
		}
	}
	wg.Wait()
	took := time.Since(begin).Seconds()
	for _, k := range kinds {
		if k.rate > 0 {
			k.print(took)
		}
	}
	fmt.Printf("cpu %.3f\n", (cpu()-before).Seconds()/took)
}

func cpu() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// burnCPU takes a share of one CPU or of several, in slices that are as short as a request.
func burnCPU(share float64, lasts time.Duration) {
	const slice = 2 * time.Millisecond
	threads := int(share) + 1
	busy := time.Duration(share / float64(threads) * float64(slice))
	end := time.Now().Add(lasts)
	var wg sync.WaitGroup
	var owed atomic.Int64
	for range threads {
		wg.Go(func() {
			for begin := time.Now(); begin.Before(end); begin = time.Now() {
				for time.Since(begin) < busy {
					owed.Add(1)
				}
				time.Sleep(slice - busy)
			}
		})
	}
	wg.Wait()
	fmt.Printf("cpu %.3f\n", cpu().Seconds()/lasts.Seconds())
}

// load is what all kinds of requests share.
type load struct {
	addr, path, token string
	gzip              bool
	lasts             time.Duration
	conns             int
}

// kind is one kind of request.
type kind struct {
	name, path string
	rate       float64

	next atomic.Int64
	mu   sync.Mutex
	took []time.Duration
	sent int64 // bytes of all answers
	bad  int
	why  string
}

// run asks at the rate of k: the request i is due at i/rate. When all connections are busy, later ones are late.
func (l *load) run(k *kind) {
	begin := time.Now()
	head := "GET " + l.path + k.path + " HTTP/1.1\r\nHost: " + l.addr + "\r\nX-SLURM-USER-TOKEN: " + l.token + "\r\n"
	if l.gzip {
		head += "Accept-Encoding: gzip\r\n"
	}
	request := []byte(head + "\r\n")
	var wg sync.WaitGroup
	for range l.conns {
		wg.Go(func() {
			var c *conn
			defer func() {
				if c != nil {
					_ = c.Close() // nothing is under way
				}
			}()
			for {
				due := begin.Add(time.Duration(float64(k.next.Add(1)-1) / k.rate * float64(time.Second)))
				if due.Sub(begin) >= l.lasts || time.Since(begin) >= l.lasts {
					return
				}
				time.Sleep(time.Until(due))
				asked := time.Now()
				var n int64
				var err error
				if c == nil {
					c, err = dial(l.addr)
				}
				if err == nil {
					n, err = c.ask(request)
				}
				if err != nil && c != nil {
					_ = c.Close() // it failed
					c = nil
				}
				k.count(time.Since(asked), n, err)
			}
		})
	}
	wg.Wait()
}

func (k *kind) count(took time.Duration, n int64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		k.bad++
		k.why = err.Error()
		return
	}
	k.took = append(k.took, took)
	k.sent += n
}

func (k *kind) print(seconds float64) {
	slices.SortFunc(k.took, func(a, b time.Duration) int { return cmp.Compare(a, b) })
	at := func(q float64) float64 {
		if len(k.took) == 0 {
			return 0
		}
		return float64(k.took[int(q*float64(len(k.took)-1))].Microseconds()) / 1000
	}
	n := max(1, int64(len(k.took)))
	fmt.Printf("%s %.0f %.1f %.1f %d %d %s\n", k.name, float64(len(k.took))/seconds, at(0.5), at(0.99), k.bad, k.sent/n,
		k.why)
}

// conn is a connection of HTTP/1.1 that knows as little of HTTP as it needs.
type conn struct {
	net.Conn
	r *textproto.Reader
}

func dial(addr string) (*conn, error) {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil, err
	}
	return &conn{c, textproto.NewReader(bufio.NewReaderSize(c, 64<<10))}, nil
}

const answerTime = 30 * time.Second

// ask sends a request and throws its answer away; n is the length of it.
func (c *conn) ask(request []byte) (n int64, err error) {
	_ = c.SetDeadline(time.Now().Add(answerTime)) // a failure shows in the write
	if _, err := c.Write(request); err != nil {
		return 0, err
	}
	status, err := c.r.ReadLine()
	if err != nil {
		return 0, err
	}
	n = -1
	for {
		line, err := c.r.ReadLineBytes()
		if err != nil {
			return 0, err
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := strings.Cut(string(line), ": ")
		if strings.EqualFold(name, "Content-Length") {
			if n, err = strconv.ParseInt(value, 10, 64); err != nil {
				return 0, err
			}
		}
	}
	if n < 0 {
		return 0, errors.New("an answer without its length")
	}
	if _, err := io.CopyN(io.Discard, c.r.R, n); err != nil {
		return 0, err
	}
	if !strings.HasPrefix(status, "HTTP/1.1 200") {
		return 0, errors.New(status)
	}
	return n, nil
}
