package certs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/rpc"
	"gbatch/internal/rpc/pki"
)

const (
	lookPace   = time.Minute            // between two looks at the certificate's file
	leastRetry = 200 * time.Millisecond // after a failure
	mostRetry  = time.Hour
	retryParts = 20 // tries in the time that is left
)

// Renewer renews a daemon's certificate at a third of its life, and takes one that was put in its place by hand.
// Connections that are open stay open.
type Renewer struct {
	Creds *pki.Credentials
	Log   *slog.Logger
	// Ask gets a certificate for a request from the leader.
	Ask func(ctx context.Context, request []byte) (*proto.Issued, error)
}

// Run renews until ctx ends.
func (r *Renewer) Run(ctx context.Context) {
	said := ""
	stamp := r.stamp()
	for ctx.Err() == nil {
		own := r.Creds.Own()
		wait := min(time.Until(own.RenewAt()), lookPace)
		if wait <= 0 {
			err := r.renew(ctx, &own)
			if err == nil {
				stamp, said = r.stamp(), ""
				now := r.Creds.Own()
				r.Log.Info("certificate renewed", "serial", now.Serial, "until", now.Until.UTC().Format(time.RFC3339))
				continue
			}
			if ctx.Err() != nil {
				return
			}
			if err.Error() != said {
				said = err.Error()
				r.Log.Warn("the certificate could not be renewed; it is tried again", "file", r.Creds.File(),
					"expires", own.Until.UTC().Format(time.RFC3339), "err", err)
			}
			wait = min(max(time.Until(own.Until)/retryParts, leastRetry), mostRetry)
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		if now := r.stamp(); now != stamp {
			stamp = now
			if err := r.Creds.Reload(); err != nil {
				r.Log.Warn("the certificate's file has changed and can't be used; the old one is in use", "err", err)
			} else {
				r.Log.Info("certificate replaced", "file", r.Creds.File(), "serial", r.Creds.Own().Serial)
			}
		}
	}
}

// stamp tells one version of the certificate's file from another.
func (r *Renewer) stamp() (s struct {
	at   time.Time
	size int64
}) {
	if st, err := os.Stat(r.Creds.File()); err == nil {
		s.at, s.size = st.ModTime(), st.Size()
	} else if !errors.Is(err, fs.ErrNotExist) {
		r.Log.Debug("the certificate's file can't be looked at", "err", err)
	}
	return s
}

func (r *Renewer) renew(ctx context.Context, own *pki.Holder) error {
	request, err := pki.Request(r.Creds.Dir(), own.Role, own.Name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, joinPatience)
	defer cancel()
	issued, err := r.Ask(ctx, request)
	if err != nil {
		return err
	}
	if err := pki.Install(r.Creds.Dir(), own.Role, own.Name, issued.Cert, issued.CA); err != nil {
		return err
	}
	return r.Creds.Reload()
}

// AskAt makes a Renewer's Ask for a daemon that dials controllers, whose addresses addrs gives.
func AskAt(creds *pki.Credentials, addrs func() []string) func(context.Context, []byte) (*proto.Issued, error) {
	return func(ctx context.Context, request []byte) (*proto.Issued, error) {
		body, err := proto.Encode(&proto.Renew{Request: request})
		if err != nil {
			return nil, err
		}
		last := errors.New("no controller is known")
		queue := addrs()
		for i, hints := 0, 0; i < len(queue); i++ {
			nc, err := pki.Dial(ctx, queue[i], pki.ProtoRPC, creds, pki.RoleCtld)
			if err != nil {
				last = err
				continue
			}
			issued, err := askOver(ctx, nc, queue[i], proto.KindRenew, body)
			if err == nil {
				return issued, nil
			}
			last = fmt.Errorf("the controller at %s: %w", queue[i], err)
			var said *rpc.Error
			if errors.As(err, &said) && said.Code == proto.CodeNotLeader && said.Text != "" && hints == 0 {
				hints++
				queue = append(queue, said.Text)
			} else if said != nil && proto.Settled(said.Code) {
				return nil, last
			}
		}
		return nil, last
	}
}
