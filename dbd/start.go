package dbd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"gbatch/internal/certs"
	"gbatch/internal/conf"
	"gbatch/internal/conf/locate"
	"gbatch/internal/quietlog"
	"gbatch/internal/rpc/pki"
)

// Start is gdbd as a program: Options from the command line, completed from a configuration.
type Start struct {
	Options Options
	Conf    string // the configuration's file or directory; "": the same places as for every gbatch command
	Join    string // TOKEN@HOST: only get a certificate
}

// Run reads the configuration, opens the log and runs the daemon until ctx ends. Until there is a log, messages go to
// stderr. It needs no configuration if the command line has a name, an address, a directory and certificates.
func (s *Start) Run(ctx context.Context, stderr io.Writer) error {
	c, err := s.load(stderr)
	if err != nil {
		return err
	}
	if s.Join != "" {
		if c != nil {
			if err := s.Options.Configure(c); err != nil {
				return err
			}
		}
		return certs.JoinHost(ctx, s.Join, pki.RoleDBD, s.Options.Name, s.Options.PKI, stderr)
	}
	if c == nil {
		s.Options.Logger = newLog(stderr, "info")
		return s.serve(ctx)
	}
	if err := s.Options.Configure(c); err != nil {
		return err
	}
	if c.DbdLogFile == "" {
		s.Options.Logger = newLog(stderr, c.DbdDebug)
		return s.serve(ctx)
	}
	f, err := os.OpenFile(c.DbdLogFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("opening the log (DbdLogFile): %w", err)
	}
	s.Options.Logger = newLog(f, c.DbdDebug)
	if err = s.serve(ctx); err != nil {
		s.Options.Logger.Error("accounting daemon ends", "err", err) // the caller says it on stderr
	}
	return errors.Join(err, f.Close())
}

func (s *Start) serve(ctx context.Context) error {
	for {
		d, err := New(s.Options)
		if err != nil {
			return err
		}
		err = d.Run(ctx)
		if !errors.Is(err, errCopied) {
			return err
		}
		if text := strings.TrimSuffix(err.Error(), errCopied.Error()); text != "" { // the old database is still there
			s.Options.Logger.Error(strings.TrimSpace(text))
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// load gives the configuration, or nil if there is none and none is needed.
func (s *Start) load(stderr io.Writer) (*conf.Config, error) {
	path := s.Conf
	if path == "" {
		var err error
		path, err = locate.Config(os.Getenv)
		o := &s.Options
		complete := o.Name != "" && o.Listen != "" && o.Dir != "" && o.PKI != ""
		if errors.Is(err, locate.ErrNoConfig) && complete {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	read := conf.LoadFile
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		read = conf.Load
	}
	c, problems := read(path)
	if c != nil {
		return c, nil // `gbatch check` and the controller report notes and warnings
	}
	for _, p := range problems {
		if p.Severity == conf.Error {
			fmt.Fprintln(stderr, p)
		}
	}
	return nil, fmt.Errorf("the configuration %s can't be used as it is; `gbatch check` tells all about it", path)
}

// newLog gives a log for one of Slurm's level names.
func newLog(to io.Writer, level string) *slog.Logger {
	min := slog.LevelInfo
	switch {
	case level == "quiet":
		return slog.New(slog.DiscardHandler)
	case level == "fatal", level == "error":
		min = slog.LevelError
	case level == "verbose", strings.HasPrefix(level, "debug"):
		min = slog.LevelDebug
	}
	return slog.New(quietlog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: min})))
}
