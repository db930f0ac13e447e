package dbd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"gbatch/internal/become"
	"gbatch/internal/certs"
	"gbatch/internal/conf"
	"gbatch/internal/conf/locate"
	"gbatch/internal/logfile"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/wall"
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
	path, level, format := "", "info", "text"
	if c != nil {
		if err := s.Options.Configure(c); err != nil {
			return err
		}
		path, level, format = c.DbdLogFile, c.DbdDebug, c.LogFormat
		if err := become.Daemon(c.SlurmUser, become.Places{Own: []string{s.Options.Dir, s.Options.PKI},
			Log: path}); err != nil {
			return err
		}
	}
	if s.Join != "" {
		return certs.JoinHost(ctx, s.Join, pki.RoleDBD, s.Options.Name, s.Options.PKI, stderr)
	}
	l, err := logfile.Open(path, stderr, level, format)
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

// Options configure an accounting daemon.
type Options struct {
	Name    string // the name in its certificate, dbd-NAME.crt
	Cluster string // of the configuration; "": there is none
	Listen  string // host:port of its one TLS port; an empty host means all addresses, port 0 any port
	Dir     string // directory of the database; made if missing, for one gdbd at a time
	PKI     string // directory with ca.crt and this daemon's certificate

	Controllers []string // host:port of each, which renew the certificate; none: it is not renewed

	// Two gdbds can keep the same records. Other is the address of the other one, host:port; "": there is none. Copy says
	// that this one is the copy, AccountingStorageBackupHost's.
	Other string
	Copy  bool

	// KeepMonths is how many whole months of finished records to keep in addition to the present month; 0 keeps all.
	// Unfinished jobs are kept in any case.
	KeepMonths int

	Logger *slog.Logger     // nil: no log
	Now    func() time.Time // nil: the host's; used only to decide which months are old
}

// Configure fills in unset options from a configuration. The name is the host's name up to its first dot. If
// AccountingStorageHost is an address or localhost, gdbd listens on that; if it is a name, gdbd listens on all
// addresses, because the name may resolve to something else on its own host (Debian's 127.0.1.1).
func (o *Options) Configure(c *conf.Config) error {
	set := func(to *string, value string) {
		if *to == "" {
			*to = value
		}
	}
	if o.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("asking for this host's name: %w; give gdbd's name with -N", err)
		}
		o.Name, _, _ = strings.Cut(host, ".")
	}
	if c.DbdAddr != "" {
		addr := c.DbdAddr
		if o.Copy = c.DbdCopyAddr != "" && o.isAt(c.DbdCopyAddr) && !o.isAt(c.DbdAddr); o.Copy {
			addr = c.DbdCopyAddr
			o.Other = c.DbdAddr
		} else {
			o.Other = c.DbdCopyAddr
		}
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			return fmt.Errorf("the address %s of gdbd: %w", addr, err)
		}
		if net.ParseIP(host) == nil && host != "localhost" {
			host = ""
		}
		set(&o.Listen, net.JoinHostPort(host, port))
	}
	set(&o.Cluster, c.ClusterName)
	set(&o.Dir, c.DbdStateLocation)
	set(&o.PKI, c.PKIDir)
	for _, ctl := range c.Controllers {
		o.Controllers = append(o.Controllers, ctl.Addr)
	}
	return nil
}

// isAt reports whether an address of the configuration is this gdbd's: it was told to listen there, its name is the
// host's, or this machine has the address.
func (o *Options) isAt(addr string) bool {
	if o.Listen != "" {
		return o.Listen == addr
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if ip := net.ParseIP(host); ip != nil {
		own, err := net.InterfaceAddrs()
		return err == nil && slices.ContainsFunc(own, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && n.IP.Equal(ip)
		})
	}
	first, _, _ := strings.Cut(host, ".")
	return strings.EqualFold(first, o.Name) || strings.EqualFold(host, o.Name)
}

// maxKeepMonths is a hundred years; a larger number is a typing error.
const maxKeepMonths = 1200

func (o *Options) check() error {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = wall.Now
	}
	switch {
	case o.Name == "":
		return errors.New("gdbd needs its name, the one its certificate was issued for; give it with -N")
	case o.Listen == "":
		return errors.New("gdbd needs an address to listen on; set AccountingStorageHost in gbatch.conf or give --listen " +
			"HOST:PORT")
	case o.Dir == "":
		return errors.New("gdbd needs a directory for its database; set DbdStateLocation in gbatch.conf or give --dir")
	case o.PKI == "":
		return errors.New("gdbd needs the directory of its certificate; set PKIDir in gbatch.conf or give --pki")
	case o.KeepMonths < 0 || o.KeepMonths > maxKeepMonths:
		return fmt.Errorf("%d months to keep: give --keep-months a number from 1 to %d, or 0 to keep all", o.KeepMonths,
			maxKeepMonths)
	}
	return nil
}
