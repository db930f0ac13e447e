// Command attack is one user who wants the cluster to stop: it keeps many connections to a daemon's
// socket busy with one kind of request each, all at once. scripts/attack.sh runs it beside
// submissions of others and watches the daemons.
//
//	attack [-c CONNECTIONS] [-t TIME] DIR|SOCKET HOW
//
// DIR is the directory of the cluster's sockets (run). HOW is a name of the table in this file;
// -h lists them.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
)

// way is one kind of attack: what each connection does again and again. After an error a new one follows.
type way struct {
	name, says string
	do         func(ctx context.Context, c *rpc.Conn, n int64) error
	most       int // connections; 0: any number. Its own memory must not be what slows the others
}

// call sends a request and reads the whole answer.
func call(kind uint16, make func(n int64) proto.Message) func(context.Context, *rpc.Conn, int64) error {
	return func(ctx context.Context, c *rpc.Conn, n int64) error {
		body, err := proto.Encode(make(n))
		if err != nil {
			return err
		}
		err = c.Stream(ctx, kind, body, func(*rpc.Frame) error { return nil })
		if e := (*rpc.Error)(nil); errors.As(err, &e) {
			return nil // refused: the connection goes on
		}
		return err
	}
}

// raw sends a frame whose body no program of the cluster would make.
func raw(kind uint16, body []byte) func(context.Context, *rpc.Conn, int64) error {
	return func(ctx context.Context, c *rpc.Conn, _ int64) error {
		err := c.Stream(ctx, kind, body, func(*rpc.Frame) error { return nil })
		if e := (*rpc.Error)(nil); errors.As(err, &e) {
			return nil
		}
		return err
	}
}

func submission(n int64, change func(*proto.SubmitRequest)) proto.Message {
	sp := &model.Spec{Name: "attack", WorkDir: "/tmp", StdOut: "/dev/null", MinNodes: 1, MaxNodes: 1, LimitS: 60,
		HoldReq: true, Command: "a.sh", UID: uint32(os.Getuid())}
	rq := &proto.SubmitRequest{RequestID: fmt.Sprintf("attack-%d-%d", os.Getpid(), n), Spec: sp,
		Script: []byte("#!/bin/sh\ntrue\n"), Env: []byte("PATH=/bin\x00")}
	if change != nil {
		change(rq)
	}
	return rq
}

// list is a message that says it is a list of so many small numbers: the least bytes for the most elements.
func list(elements int) []byte {
	return append([]byte{0x91, 0xdd, byte(elements >> 24), byte(elements >> 16), byte(elements >> 8), byte(elements)},
		bytes.Repeat([]byte{0x90}, elements)...)
}

const mib = 1 << 20

var ways = []way{
	{"list", "lists all jobs", call(proto.KindJobs, func(int64) proto.Message { return &proto.JobsRequest{} }), 0},
	{"lists", "lists jobs by filters that nobody shares", call(proto.KindJobs, func(n int64) proto.Message {
		return &proto.JobsRequest{Filter: proto.JobFilter{Names: []string{fmt.Sprint("n", n)}}}
	}), 0},
	{"slow", "asks for all jobs and does not read", func(ctx context.Context, c *rpc.Conn, n int64) error {
		body, err := proto.Encode(&proto.JobsRequest{Filter: proto.JobFilter{NotUsers: []uint32{uint32(n)}}})
		if err != nil {
			return err
		}
		for id := uint32(1); id <= 16; id++ {
			if err := c.WriteFrame(proto.KindJobs, 0, id, body); err != nil {
				return err
			}
		}
		<-ctx.Done()
		return ctx.Err()
	}, 0},
	{"submit", "submits held jobs", call(proto.KindSubmit, func(n int64) proto.Message { return submission(n, nil) }), 0},
	{"large", "submits jobs with scripts of 4 MiB", call(proto.KindSubmit, func(n int64) proto.Message {
		return submission(n, func(rq *proto.SubmitRequest) {
			rq.Script = append(fmt.Appendf(rq.Script, "#%d", n), bytes.Repeat([]byte("x"), 4*mib-64)...)
		})
	}), 64},
	{"env", "submits jobs with 4 MiB of environment", call(proto.KindSubmit, func(n int64) proto.Message {
		return submission(n, func(rq *proto.SubmitRequest) {
			rq.Env = append(fmt.Appendf(nil, "A%d=", n), append(bytes.Repeat([]byte("y"), 4*mib-64), 0)...)
		})
	}), 64},
	{"edit", "sends 16 MiB of edits of accounts", raw(proto.KindEditAccounts, list(16*mib-64)), 0},
	{"targets", "cancels a million jobs that are not there", raw(proto.KindCancel, list(mib)), 0},
	{"half", "sends 12 MiB but for the last byte", func(ctx context.Context, c *rpc.Conn, _ int64) error {
		return half(ctx, c.Name())
	}, 256}, // two for each
	{"acct", "reads all accounting records", call(proto.KindAcct, func(int64) proto.Message {
		return &proto.AcctRequest{Duplicates: true}
	}), 0},
	{"report", "asks for reports of ten years", call(proto.KindReport, func(n int64) proto.Message {
		now := model.Time(time.Now().UnixMilli())
		return &proto.ReportRequest{What: proto.ReportUsage, By: proto.ByAccount | proto.ByUser, End: now,
			Start: now - model.Time(n%1000+1)*86400_000, GIDs: []uint32{uint32(n)}}
	}), 0},
	{"why", "asks why jobs wait", call(proto.KindWhy, func(int64) proto.Message {
		return &proto.WhyRequest{Mine: true}
	}), 0},
	{"nodes", "lists nodes with their units", call(proto.KindNodes, func(int64) proto.Message {
		return &proto.NodesRequest{Units: true}
	}), 0},
	{"noise", "sends a MiB of random bytes", noise, 0},
	{"http", "lists all jobs over HTTP", web(http.MethodGet, "/slurm/v0.0.44/jobs/", "", "gzip"), 0},
	{"httplong", "lists all jobs over HTTP, not compressed", web(http.MethodGet, "/slurm/v0.0.44/jobs/", "", "identity"),
		0},
	{"httpbody", "sends jobs of 16 MiB over HTTP that can't be read", web(http.MethodPost, "/slurm/v0.0.44/job/submit",
		strings.Repeat("[{},", 4*mib), "gzip"), 64},
	{"ping", "pings", call(proto.KindPing, func(int64) proto.Message { return &proto.Empty{} }), 0},
}

// noise is no protocol at all, at the daemon's socket and at its HTTP one.
func noise(ctx context.Context, c *rpc.Conn, n int64) error {
	at := c.Name()
	if n&1 != 0 {
		at = httpSocket(at)
	}
	nc, err := new(net.Dialer).DialContext(ctx, "unix", at)
	if err != nil {
		return err
	}
	defer nc.Close() //nolint:errcheck // whatever has become of it
	stop := context.AfterFunc(ctx, func() { _ = nc.Close() })
	defer stop()
	b := make([]byte, mib)
	rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)}).Read(b) //nolint:errcheck // it never fails
	if n&2 != 0 {
		copy(b, "GBATCH\x00\x01")
	}
	if _, err := nc.Write(b); err != nil {
		return nil // the daemon has had enough
	}
	_, _ = io.Copy(io.Discard, nc) // until it has
	return nil
}

// httpSocket is where the controller at a socket serves HTTP: http-NAME beside ctld-NAME.sock.
func httpSocket(at string) string {
	name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(at), "ctld-"), ".sock")
	return filepath.Join(filepath.Dir(at), "http-"+name)
}

// web makes a request over HTTP; each caller keeps its connection. What comes is not unpacked: that is not the daemon's
// work.
func web(method, path, body, packed string) func(context.Context, *rpc.Conn, int64) error {
	var one sync.Once
	var client http.Client
	return func(ctx context.Context, c *rpc.Conn, _ int64) error {
		one.Do(func() {
			at := httpSocket(c.Name())
			client.Transport = &http.Transport{MaxIdleConnsPerHost: 1024,
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, "unix", at)
				}}
		})
		r, err := http.NewRequestWithContext(ctx, method, "http://gbatch"+path, strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Accept-Encoding", packed)
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		got, err := client.Do(r)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, got.Body)
		return errors.Join(err, got.Body.Close())
	}
}

var zeros [12*mib - 1]byte

// half sends all of a message of 12 MiB but its last byte, and waits.
func half(ctx context.Context, at string) error {
	c, err := new(net.Dialer).DialContext(ctx, "unix", at)
	if err != nil {
		return err
	}
	defer c.Close() //nolint:errcheck // whatever has become of it
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	b := append([]byte("GBATCH"), 0, 1)
	b = binary.BigEndian.AppendUint32(b, uint32(len(zeros))+9)
	b = binary.BigEndian.AppendUint16(b, proto.KindSubmit)
	b = append(b, 0, 0, 0, 0, 0, 1)
	if _, err := c.Write(b); err != nil {
		return err
	}
	if _, err := c.Write(zeros[:]); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, c) // until the daemon has enough
	return err
}

func main() {
	conns := flag.Int("c", 512, "`number` of connections")
	lasts := flag.Duration("t", 10*time.Second, "`time`")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "attack [-c CONNECTIONS] [-t TIME] DIR|SOCKET HOW")
		flag.PrintDefaults()
		for _, w := range ways {
			fmt.Fprintf(os.Stderr, "  %-8s %s\n", w.name, w.says)
		}
	}
	flag.Parse()
	if err := attack(*conns, *lasts, flag.Arg(0), flag.Arg(1)); err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(1)
	}
}

func attack(conns int, lasts time.Duration, at, how string) error {
	var w *way
	for i := range ways {
		if ways[i].name == how {
			w = &ways[i]
		}
	}
	if w == nil {
		var names []string
		for _, w := range ways {
			names = append(names, w.name)
		}
		return fmt.Errorf("'%s' is none of %s", how, strings.Join(names, " "))
	}
	if w.most > 0 {
		conns = min(conns, w.most)
	}
	if st, err := os.Stat(at); err != nil {
		return err
	} else if st.IsDir() {
		list, err := filepath.Glob(filepath.Join(at, "ctld*.sock"))
		if err != nil || len(list) == 0 {
			return fmt.Errorf("%s has no controller's socket", at)
		}
		at = list[0]
	}
	ctx, cancel := context.WithTimeout(context.Background(), lasts)
	defer cancel()
	var next, made, refused, failed atomic.Int64
	var why sync.Map
	var all sync.WaitGroup
	for range conns {
		all.Go(func() {
			for ctx.Err() == nil {
				c, err := rpc.DialUnix(at, time.Second)
				for err == nil && ctx.Err() == nil {
					if err = w.do(ctx, c, next.Add(1)); err == nil {
						made.Add(1)
					}
				}
				if c != nil {
					_ = c.Close() // it failed, or the time is over
				}
				if ctx.Err() != nil {
					return
				}
				failed.Add(1)
				why.Store(fmt.Sprintf("%.120v", err), true)
				if errors.Is(err, syscall.EAGAIN) {
					refused.Add(1)
				}
				time.Sleep(time.Millisecond) // the pace of dialling again
			}
		})
	}
	all.Wait()
	fmt.Printf("%s: %d connections made %d calls, and failed %d times", how, conns, made.Load(), failed.Load())
	shown := 0
	why.Range(func(k, _ any) bool {
		fmt.Printf("\n  %v", k)
		shown++
		return shown < 3
	})
	fmt.Println()
	return nil
}
