package certs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

// join.go is the side of the host that gets a certificate.

const (
	joinPatience = 30 * time.Second // for a leader to be found
	joinPace     = 500 * time.Millisecond
	askLimit     = 10 * time.Second // for one answer
)

// Join gets the certificate of a daemon with a token, from the controller at addr or the leader that it names, and
// writes it and its key to dir. If it fails on the way, it can be made again with the same token on the same host.
func Join(ctx context.Context, t Token, addr, role, name, dir string) error {
	request, err := pki.Request(dir, role, name)
	if err != nil {
		return err
	}
	body, err := proto.Encode(&proto.Join{ID: t.ID, Secret: t.Secret, Role: role, Name: name, Request: request})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, joinPatience)
	defer cancel()
	at, asked := addr, []string{addr}
	for {
		issued, err := ask(ctx, at, t.Fingerprint, proto.KindJoin, body)
		if err == nil {
			return pki.Install(dir, role, name, issued.Cert, issued.CA)
		}
		var said *rpc.Error
		leads := ""
		switch isError := errors.As(err, &said); {
		case isError && said.Code == proto.CodeNotLeader:
			leads = said.Text
		case isError && proto.Settled(said.Code), errors.Is(err, pki.ErrFingerprint):
			return err
		}
		if at = addr; leads != "" && leads != addr {
			at = leads
			if !slices.Contains(asked, leads) {
				asked = append(asked, leads)
				continue
			}
		}
		select {
		case <-time.After(joinPace):
		case <-ctx.Done():
			return err
		}
	}
}

// ask makes one request of a host without a certificate.
func ask(ctx context.Context, addr string, fingerprint []byte, kind uint16, body []byte) (*proto.Issued, error) {
	dial := pki.DialJoin
	if kind == proto.KindTime {
		dial = pki.DialTime
	}
	nc, err := dial(ctx, addr, fingerprint)
	if err != nil {
		return nil, err
	}
	return askOver(ctx, nc, addr, kind, body)
}

// askOver makes one request on a connection and closes it.
func askOver(ctx context.Context, nc net.Conn, addr string, kind uint16, body []byte) (*proto.Issued, error) {
	conn := rpc.Client(nc, rpc.ConnOptions{Name: "controller at " + addr})
	defer func() { _ = conn.Close() }() // the answer is all that counts
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := conn.SetReadDeadline(time.Now().Add(askLimit)); err != nil {
		return nil, err
	}
	f, err := conn.Call(ctx, kind, body)
	if err != nil {
		return nil, err
	}
	issued := new(proto.Issued)
	return issued, proto.Decode(f.Body, issued)
}

// ClockOff gives how far this host's clock is ahead of a controller's, which is asked without regard to the dates of
// certificates. It tells a wrong clock apart from a certificate that has expired.
func ClockOff(ctx context.Context, addrs []string, dir string) (off time.Duration, from string, err error) {
	fingerprint, err := pki.Fingerprint(dir)
	if err != nil {
		return 0, "", err
	}
	err = errors.New("no controller is known")
	for _, addr := range addrs {
		var issued *proto.Issued
		if issued, err = ask(ctx, addr, fingerprint, proto.KindTime, nil); err == nil {
			return time.Since(time.UnixMilli(int64(issued.Now))), addr, nil
		}
	}
	return 0, "", err
}

// maxOff is a difference of clocks that explains a certificate out of date.
const maxOff = time.Minute

// Explain adds to the error of a certificate that is out of date whether this host's clock is to blame.
func Explain(ctx context.Context, err error, addrs []string, dir string) error {
	if !errors.Is(err, pki.ErrDates) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	off, from, askErr := ClockOff(ctx, addrs, dir)
	switch {
	case askErr != nil:
		return fmt.Errorf("%w; whether this host's clock is right could not be found out: %w", err, askErr)
	case off.Abs() > maxOff:
		side := "ahead of"
		if off < 0 {
			side = "behind"
		}
		return fmt.Errorf("this host's clock is %s %s that of the controller at %s: set it (NTP), the certificate may be "+
			"good: %w", off.Abs().Round(time.Second), side, from, err)
	}
	return fmt.Errorf("%w; this host's clock agrees with that of the controller at %s", err, from)
}

// DefaultPort is the controllers' port where TOKEN@HOST has none.
const DefaultPort = "6817"

// maxJoin bounds a TOKEN@HOST that is read.
const maxJoin = 4 << 10

// read gives what follows --join. With "-" it is a line of the standard input: other users of a host see the command
// lines of its programs.
func read(text string, in io.Reader) (string, error) {
	if text != "-" {
		return text, nil
	}
	line, err := bufio.NewReader(io.LimitReader(in, maxJoin)).ReadString('\n')
	if line = strings.TrimSpace(line); line != "" {
		return line, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = errors.New("the standard input has no TOKEN@HOST of gbatch cert token")
	}
	return "", err
}

// JoinHost is --join of a daemon: it gets the certificate of that role and name into dir and says so.
func JoinHost(ctx context.Context, text, role, name, dir string, say io.Writer) error {
	text, err := read(text, os.Stdin)
	if err != nil {
		return fmt.Errorf("--join -: %w", err)
	}
	t, addr, err := ParseJoin(text, DefaultPort)
	if err != nil {
		return fmt.Errorf("--join: %w", err)
	}
	if err := Join(ctx, t, addr, role, name, dir); err != nil {
		return fmt.Errorf("%s %s did not get a certificate from %s: %w", role, name, addr, err)
	}
	c, err := pki.Load(dir, role, name)
	if err != nil {
		return err
	}
	own := c.Own()
	_, err = fmt.Fprintf(say, "%s %s has its certificate, %s, valid until %s; the daemon renews it while it runs\n", role,
		name, c.File(), own.Until.Local().Format("2006-01-02 15:04"))
	return err
}
