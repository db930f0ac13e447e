package devcluster_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	mrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gbatch/internal/conf"
	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// What strangers and broken clients send must not cost the cluster anything but the connection: whoever sends it gets
// nothing, and jobs go on.

// strangerTimeout bounds each connection of a stranger; a daemon that would keep one longer fails the test.
const strangerTimeout = 5 * time.Second

func TestStrangersOnPorts(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{Nodes: 1})
	foreign := foreignCertificate(t)
	otherCA := filepath.Join(t.TempDir(), "other")
	must(t, os.Mkdir(otherCA, 0o700))
	must(t, pki.InitCA(otherCA, "dev"))
	must(t, pki.Issue(otherCA, pki.RoleCtld, "ctl1", []string{"127.0.0.1"}, otherCA))
	sameName, err := pki.Load(otherCA, pki.RoleCtld, "ctl1")
	must(t, err)

	for port, addr := range ports(t, c) {
		for name, data := range garbage() {
			t.Run(port+"/"+name, func(t *testing.T) {
				nc := dial(t, "tcp", addr)
				send(t, nc, data)
				if got := allFrom(t, nc); len(got) > 0 && !isAlert(got) {
					t.Errorf("a stranger without TLS was answered %q", got)
				}
			})
		}
		for name, cfg := range map[string]*tls.Config{
			"no certificate":      {MinVersion: tls.VersionTLS13},
			"old TLS":             {MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS12},
			"own certificate":     {Certificates: []tls.Certificate{foreign}},
			"another authority's": sameName.ClientTLS(),
		} {
			for _, alpn := range []string{pki.ProtoRPC, pki.ProtoRaft, "h2"} {
				t.Run(port+"/"+name+"/"+alpn, func(t *testing.T) {
					cfg := cfg.Clone()
					cfg.InsecureSkipVerify, cfg.NextProtos = true, []string{alpn} // a stranger doesn't care
					nc := tls.Client(dial(t, "tcp", addr), cfg)
					if err := nc.Handshake(); err != nil {
						return
					}
					// In TLS 1.3 the client is done before the server has judged it.
					_, _ = nc.Write(request(proto.KindPing, nil)) // may be refused by then
					got, err := io.ReadAll(nc)
					if len(got) > 0 || err == nil {
						t.Errorf("was answered %q (%v)", got, err)
					}
				})
			}
		}
	}
	works(t, c)
}

// TestGarbageOnSockets sends garbage to every local socket, as any user of a host can.
func TestGarbageOnSockets(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{Nodes: 1})
	sockets, err := filepath.Glob(filepath.Join(c.Dir, "run", "*.sock"))
	if err != nil || len(sockets) < 2 {
		t.Fatalf("sockets %v (%v)", sockets, err)
	}
	for _, path := range sockets {
		for name, data := range garbage() {
			t.Run(filepath.Base(path)+"/"+name, func(t *testing.T) {
				nc := dial(t, "unix", path)
				send(t, nc, data)
				got := allFrom(t, nc)
				if bytes.Contains(got, []byte("ClusterName")) {
					t.Errorf("garbage was answered %q", got)
				}
			})
		}
		t.Run(filepath.Base(path)+"/every kind", func(t *testing.T) { everyKind(t, path) })
	}
	works(t, c)
}

// everyKind sends each kind of request with bodies that are empty, random, and cut off.
func everyKind(t *testing.T, path string) {
	rnd := mrand.New(mrand.NewPCG(1, 2))
	random := make([]byte, 300)
	for i := range random {
		random[i] = byte(rnd.Uint32())
	}
	whole, err := proto.Encode(&proto.SubmitRequest{RequestID: "cut", Script: []byte("#!/bin/sh\n"),
		Spec: &model.Spec{Name: "x", WorkDir: "/"}})
	must(t, err)
	for kind := uint16(0); kind < 120; kind++ {
		if kind == proto.KindWait {
			continue // an empty one waits for job 0, which is refused in its own time
		}
		for _, body := range [][]byte{nil, random, whole[:len(whole)/2], bytes.Repeat([]byte{0xff}, 64),
			bytes.Repeat([]byte{0x91}, 4096)} {
			conn, err := rpc.DialUnix(path, strangerTimeout)
			must(t, err)
			ctx, cancel := context.WithTimeout(context.Background(), strangerTimeout)
			err = conn.Stream(ctx, kind, body, func(*rpc.Frame) error { return nil })
			cancel()
			var answered *rpc.Error
			if err != nil && !errors.As(err, &answered) {
				t.Errorf("kind %d with %d bytes: %v; an answer with a sentence is wanted", kind, len(body), err)
			}
			if answered != nil && strings.TrimSpace(answered.Text) == "" {
				t.Errorf("kind %d with %d bytes: an error without words", kind, len(body))
			}
			_ = conn.Close() // nothing is under way
		}
	}
}

// TestDaemonsKeepToTheirRoles: a certificate allows only the requests of its role. A compute node can't act for root or
// for users without a job on it, and can't send controllers' requests.
func TestDaemonsKeepToTheirRoles(t *testing.T) {
	c := devcluster.Start(t, devcluster.Options{Nodes: 1})
	all := ports(t, c)
	dir := filepath.Join(c.Dir, "pki")
	node, err := pki.Load(dir, pki.RoleNode, "n1")
	must(t, err)
	call := func(port, role, alpn string, kind uint16, m proto.Message) error {
		nc, err := pki.Dial(context.Background(), all[port], alpn, node, role)
		if err != nil {
			return err
		}
		conn := rpc.Client(nc, rpc.ConnOptions{Name: port})
		defer conn.Close() //nolint:errcheck // the answer is all that counts
		body, err := proto.Encode(m)
		must(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), strangerTimeout)
		defer cancel()
		_, err = conn.Call(ctx, kind, body)
		return err
	}
	forward := func(uid uint32, kind uint16, m proto.Message) *proto.Forward {
		body, err := proto.Encode(m)
		must(t, err)
		return &proto.Forward{Caller: proto.Caller{UID: uid, User: "forged"}, Kind: kind, Body: body}
	}
	submit := &proto.SubmitRequest{RequestID: "forged", Script: []byte("#!/bin/sh\n"),
		Spec: &model.Spec{Name: "x", WorkDir: "/"}}
	for name, err := range map[string]error{
		"a submission for root": call("ctl1", pki.RoleCtld, pki.ProtoRPC, proto.KindForward,
			forward(0, proto.KindSubmit, submit)),
		"a submission for a user": call("ctl1", pki.RoleCtld, pki.ProtoRPC, proto.KindForward,
			forward(1000, proto.KindSubmit, submit)),
		"a submission of its own": call("ctl1", pki.RoleCtld, pki.ProtoRPC, proto.KindSubmit, submit),
		"reconfiguring for root": call("ctl1", pki.RoleCtld, pki.ProtoRPC, proto.KindForward,
			forward(0, proto.KindReconfigure, &proto.ReconfigureRequest{})),
		"raft":                          call("ctl1", pki.RoleCtld, pki.ProtoRaft, proto.KindPing, &proto.Empty{}),
		"records for accounting":        call("dbd", pki.RoleDBD, pki.ProtoRPC, proto.KindPut, &proto.Put{Cluster: "dev"}),
		"questions past the controller": call("dbd", pki.RoleDBD, pki.ProtoRPC, proto.KindQuery, &proto.AcctRequest{}),
	} {
		if err == nil {
			t.Errorf("a node may do this: %s", name)
		}
		t.Logf("%s: %v", name, err)
	}
	// What only reads is for everybody.
	if err := call("ctl1", pki.RoleCtld, pki.ProtoRPC, proto.KindForward,
		forward(1000, proto.KindPing, &proto.Empty{})); err != nil {
		t.Errorf("ping for a user: %v", err)
	}
	works(t, c)
}

// garbage is what a port scanner, a broken client or a prankster sends before anything else.
func garbage() map[string][]byte {
	rnd := mrand.New(mrand.NewPCG(3, 4))
	random := make([]byte, 64<<10)
	for i := range random {
		random[i] = byte(rnd.Uint32())
	}
	opening := append([]byte("GBATCH"), 0, rpc.ProtocolVersion)
	huge := binary.BigEndian.AppendUint32(bytes.Clone(opening), 0xfffffff0)
	return map[string][]byte{
		"nothing":           {},
		"one byte":          {0x16},
		"random":            random,
		"http":              []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"another version":   append([]byte("GBATCH"), 0xff, 0xff),
		"half an opening":   []byte("GBAT"),
		"a huge length":     append(huge, bytes.Repeat([]byte{1}, 100)...),
		"a short length":    binary.BigEndian.AppendUint32(bytes.Clone(opening), 3),
		"half a frame":      request(proto.KindSubmit, bytes.Repeat([]byte{0x81}, 100))[:40],
		"unknown flags":     append(bytes.Clone(opening), 0, 0, 0, 8, 0, 1, 0xff, 0xff, 0, 0, 0, 1),
		"a frame and noise": append(request(9999, nil), random[:100]...),
	}
}

// request is a connection's opening and one frame.
func request(kind uint16, body []byte) []byte {
	b := append([]byte("GBATCH"), 0, rpc.ProtocolVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(8+len(body)))
	b = binary.BigEndian.AppendUint16(b, kind)
	b = binary.BigEndian.AppendUint16(b, 0)
	return append(binary.BigEndian.AppendUint32(b, 1), body...)
}

func dial(t *testing.T, network, addr string) net.Conn {
	t.Helper()
	nc, err := net.Dial(network, addr)
	must(t, err)
	t.Cleanup(func() { _ = nc.Close() }) // closed by the other side, as a rule
	must(t, nc.SetDeadline(time.Now().Add(strangerTimeout)))
	return nc
}

// send sends data and then nothing more. The other side may hang up in the middle.
func send(t *testing.T, nc net.Conn, data []byte) {
	t.Helper()
	_, _ = nc.Write(data)
	if half, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// allFrom reads until the other side hangs up, which it must.
func allFrom(t *testing.T, nc net.Conn) []byte {
	t.Helper()
	got, err := io.ReadAll(nc)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection is still open after %v", strangerTimeout)
	}
	return got
}

// isAlert recognizes TLS's word for a broken handshake.
func isAlert(b []byte) bool { return len(b) <= 7 && b[0] == 0x15 }

// ports are the TCP ports of the cluster's daemons.
func ports(t *testing.T, c *devcluster.Cluster) map[string]string {
	t.Helper()
	cfg, problems := conf.LoadFile(c.Conf)
	if cfg == nil {
		t.Fatal(problems)
	}
	out := map[string]string{"dbd": cfg.DbdAddr}
	for _, ctl := range cfg.Controllers {
		out[ctl.Name] = ctl.Addr
	}
	return out
}

// works runs a job to its end, to see that the cluster is well.
func works(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	cl := c.Client()
	defer cl.Close()
	rq := &proto.SubmitRequest{RequestID: fmt.Sprint(time.Now().UnixNano()), Script: []byte("#!/bin/sh\nexit 3\n"),
		Spec: &model.Spec{Name: "a", WorkDir: c.Dir, StdOut: "/dev/null", Umask: 0o22}}
	var reply proto.SubmitReply
	must(t, cl.Call(proto.KindSubmit, rq, &reply))
	var w proto.WaitReply
	must(t, cl.Call(proto.KindWait, &proto.WaitRequest{Job: reply.Job}, &w))
	if !w.Done || w.Code != 3 {
		t.Errorf("a job ended as %+v", w)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// foreignCertificate signs itself, with a gbatch-like name.
func foreignCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ctl1"},
		DNSNames:  []string{"ctld.gbatch"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	must(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}
