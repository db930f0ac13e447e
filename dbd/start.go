package dbd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"gbatch/internal/become"
	"gbatch/internal/certs"
	"gbatch/internal/conf"
	"gbatch/internal/conf/locate"
	"gbatch/internal/logfile"
	"gbatch/internal/rpc/pki"
)

// Start is gdbd as a program: Options from the command line, completed from a configuration.
type Start struct {
	Options Options
	Conf    string           // the configuration's file or directory; "": the same places as for every gbatch command
	Join    string           // TOKEN@HOST: only get a certificate
	Hangup  <-chan os.Signal // SIGHUPs: the log is opened anew; nil: none come
}

// Run reads the configuration, opens the log and runs the daemon until ctx ends. Until there is a log, messages go to
// stderr. It needs no configuration if the command line has a name, an address, a directory and certificates.
func (s *Start) Run(ctx context.Context, stderr io.Writer) error {
	c, err := s.load(stderr)
	if err != nil {
		return err
	}
	path, level := "", "info"
	if c != nil {
		if err := s.Options.Configure(c); err != nil {
			return err
		}
		path, level = c.DbdLogFile, c.DbdDebug
		if err := become.Daemon(c.SlurmUser, become.Places{Own: []string{s.Options.Dir, s.Options.PKI},
			Log: path}); err != nil {
			return err
		}
	}
	if s.Join != "" {
		return certs.JoinHost(ctx, s.Join, pki.RoleDBD, s.Options.Name, s.Options.PKI, stderr)
	}
	l, err := logfile.Open(path, stderr, level)
	if err != nil {
		return fmt.Errorf("opening the log (DbdLogFile): %w", err)
	}
	s.Options.Logger = l.Logger()
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with serve
		defer close(done)
		s.hangups(ctx, l)
	}()
	err = s.serve(ctx)
	if err != nil && l.IsFile() {
		s.Options.Logger.Error("accounting daemon ends", "err", err) // the caller says it on stderr
	}
	stop()
	<-done
	return errors.Join(err, l.Close())
}

// hangups opens the log anew at each SIGHUP until ctx ends.
func (s *Start) hangups(ctx context.Context, l *logfile.Log) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.Hangup:
		}
		if err := l.Reopen(); err != nil {
			s.Options.Logger.Error("the log could not be opened anew; it goes on in the old file", "err", err)
		}
		s.Options.Logger.Info("SIGHUP: the log is open")
	}
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
