package ctld

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gbatch/ctld/heap"
	"gbatch/ctld/rest"
	"gbatch/ctld/restore"
	"gbatch/internal/become"
	"gbatch/internal/certs"
	"gbatch/internal/conf"
	"gbatch/internal/conf/locate"
	"gbatch/internal/logfile"
	"gbatch/internal/model"
	"gbatch/internal/rpc/pki"
	"gbatch/internal/rpc/server"
	"gbatch/internal/store"
	"gbatch/internal/version"
)

// Start is gctld as a program: its command line, completed from the configuration.
type Start struct {
	Conf string // the configuration's file or directory; "": the same places as for every gbatch command
	Name string // name of this controller; "": the controller of this host, or the only one

	// Begin marks the empty directory of the state, so that the next start begins a new cluster; Run then only does that.
	Begin bool

	// Restore is a snapshot that the stopped controller gets; Run then only does that. Replace: also if it has a state.
	// NextJob is the number of the next submission; 0: it follows from the snapshot and accounting.
	Restore string
	Replace bool
	NextJob uint32
	Revoked string // with Restore: a list of revocations, beside the one in PKIDir
	AnyTime bool   // with Restore: this host's clock is right, though accounting had the cluster's time as less

	Join string // TOKEN@HOST: Run only gets a certificate, from another controller

	Hangup <-chan os.Signal // SIGHUPs: the log is opened anew and the configuration read; nil: none come

	Die func(error) // ends the process when the log turns out to be damaged; what returns ends with a panic
}

// Run reads the configuration, makes the certificates of a new cluster, opens the log and runs the controller until
// ctx ends. Until there is a log, messages go to stderr.
func (s *Start) Run(ctx context.Context, stderr io.Writer) (err error) {
	o, cfg, err := s.options()
	if err != nil {
		return err
	}
	path := ""
	if cfg.SlurmctldLogFile != "" {
		path = conf.ExpandPath(cfg.SlurmctldLogFile, o.Name, o.Name)
	}
	places := become.Places{Own: []string{o.Dir, o.PKI}, Shared: cfg.LocalSocketDir,
		Locks: []string{server.LockOf(o.Socket)}, Log: path}
	if o.HTTP.Socket != "" {
		places.Locks = append(places.Locks, server.LockOf(o.HTTP.Socket))
	}
	if err := become.Daemon(cfg.SlurmUser, places); err != nil {
		return err
	}
	if s.Join != "" {
		return certs.JoinHost(ctx, s.Join, pki.RoleCtld, o.Name, o.PKI, stderr)
	}
	if s.Begin {
		if err := markBegin(o.Dir); err != nil {
			return err
		}
		_, err := fmt.Fprintf(stderr, "gctld: the next start of controller %s begins a new cluster%s\n", o.Name,
			map[bool]string{true: " when all controllers run: start them"}[len(o.Peers) > 1])
		return err
	}
	if s.Restore != "" {
		r := restore.Options{File: s.Restore, Replace: s.Replace, NextJob: s.NextJob, AnyTime: s.AnyTime, Revoked: s.Revoked,
			Cluster: cfg.ClusterName, Name: o.Name, Dir: o.Dir, PKI: o.PKI, DbdAddr: o.DbdAddr, DbdCopy: o.DbdCopy}
		for _, p := range o.Peers {
			r.Peers = append(r.Peers, store.Peer{ID: p.Name, Addr: p.Addr})
		}
		if crt, err := ownCertificate(&o, cfg); err != nil { // on a new host, to which PKIDir was brought
			return err
		} else if crt != "" {
			_, _ = fmt.Fprintf(stderr, "gctld: issued this controller's certificate %s\n", crt) // only words
		}
		return restore.Run(ctx, r, stderr)
	}
	if os.Getenv("GOGC") == "" {
		tuning, stop := context.WithCancel(ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			heap.Tune(tuning)
		}()
		defer func() { stop(); <-done }()
	}
	out, err := logfile.Open(path, stderr, cfg.SlurmctldDebug, cfg.LogFormat)
	if err != nil {
		return fmt.Errorf("opening the log (SlurmctldLogFile): %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	o.Logger, o.Log = out.Logger(), out
	if err := firstCertificates(&o, cfg); err != nil {
		return err
	}
	o.Broken = func(err error) {
		o.Logger.Error("controller ends: its log is damaged; the next start says what to do", "err", err)
		s.Die(err)
	}
	c, err := New(o)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err == nil {
		o.Logger.Info("controller runs", "name", o.Name, "addr", c.Addr(), "dir", o.Dir, "version", o.Version)
		done := make(chan struct{})
		go func() { // ends with ctx or Run
			defer close(done)
			c.hangups(ctx, s.Hangup)
		}()
		err = c.Run(ctx)
		stop()
		<-done
	}
	if err != nil && out.IsFile() {
		o.Logger.Error("controller ends", "err", err) // the caller says it on stderr
	}
	return err
}

// options completes Options from the configuration.
func (s *Start) options() (Options, *conf.Config, error) {
	path := s.Conf
	if path == "" {
		var err error
		if path, err = locate.Config(os.Getenv); err != nil {
			return Options{}, nil, err
		}
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return Options{}, nil, err
	}
	read := conf.LoadFile
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		read = conf.Load
	}
	cfg, problems := read(path)
	if cfg == nil {
		var lines []string
		for _, p := range problems {
			if p.Severity == conf.Error {
				lines = append(lines, p.String())
			}
		}
		return Options{}, nil, fmt.Errorf("the configuration %s has errors:\n%s", path, strings.Join(lines, "\n"))
	}
	o := Options{HeartbeatTimeout: time.Duration(cfg.ControllerHeartbeatMS) * time.Millisecond,
		ElectionTimeout: time.Duration(cfg.ControllerElectionMS) * time.Millisecond,
		Cluster:         cfg.ClusterName, ConfigPath: cfg.Path,
		PKI: cfg.PKIDir, DbdAddr: cfg.DbdAddr, DbdCopy: cfg.DbdCopyAddr, Version: version.Version,
		Load: func() (*conf.Config, []conf.Problem) { return read(path) }}
	host, err := os.Hostname()
	if err != nil {
		host = "" // then the name has to be given
	}
	if o.Name, err = nameOf(cfg, s.Name, host); err != nil {
		return Options{}, nil, err
	}
	for _, c := range cfg.Controllers {
		o.Peers = append(o.Peers, Peer{Name: c.Name, Addr: c.Addr})
	}
	o.Dir = conf.ExpandPath(cfg.StateSaveLocation, o.Name, host)
	o.HTTP = rest.Config{HTTP: cfg.HTTP, Addr: cfg.HTTP.HTTPAddr(o.Name, cfgAddr(cfg, o.Name))}
	if o.HTTP.Addr != "" {
		o.HTTP.Socket = filepath.Join(cfg.LocalSocketDir, "http-"+o.Name)
	}
	o.Socket = filepath.Join(cfg.LocalSocketDir, "ctld-"+o.Name+".sock")
	if o.UID, err = operatorUID(cfg.SlurmUser); err != nil {
		return Options{}, nil, err
	}
	o.Paths = []model.KV{{Key: "LocalSocketDir", Value: cfg.LocalSocketDir}, {Key: "PKIDir", Value: cfg.PKIDir},
		{Key: "StateSaveLocation", Value: o.Dir}}
	return o, cfg, nil
}

// nameOf finds the name of this controller in the configuration.
func nameOf(cfg *conf.Config, given, host string) (string, error) {
	if given == "" {
		if c, ok := cfg.Controller(host); ok {
			return c.Name, nil
		}
		if len(cfg.Controllers) == 1 {
			return cfg.Controllers[0].Name, nil
		}
	} else if c, ok := cfg.Controller(given); ok {
		return c.Name, nil
	}
	var names []string
	for _, c := range cfg.Controllers {
		names = append(names, c.Name)
	}
	if given == "" {
		return "", fmt.Errorf("this host, '%s', is not a controller in %s (%s); name it with -N", host,
			cfg.Path, strings.Join(names, ", "))
	}
	return "", fmt.Errorf("'%s' is not a controller in %s: SlurmctldHost names %s", given, cfg.Path,
		strings.Join(names, ", "))
}

// operatorUID gives the user who may do everything besides root: the user that the controller runs as, or SlurmUser.
func operatorUID(name string) (uint32, error) {
	if uid := os.Geteuid(); uid != 0 {
		return uint32(uid), nil
	}
	if name == "" || name == "root" {
		return 0, nil
	}
	return become.UID(name)
}

// markBegin says that the next start on this directory begins a new cluster. What has state can't begin one.
func markBegin(dir string) error {
	snapshots, err := filepath.Glob(filepath.Join(dir, "snapshots", "*"))
	if err != nil {
		return err
	}
	if _, err := os.Lstat(filepath.Join(dir, "raft.db")); err == nil || len(snapshots) > 0 {
		return fmt.Errorf("%s has a cluster's state; to begin a new one without it, move it away: mv %s %s.old", dir, dir,
			dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, conf.BeginFile), nil, 0o600)
}

// firstCertificates makes the cluster's certificate authority at the first start of a cluster, and a certificate for
// the controller that has the authority. With several controllers it is the first one in the configuration; the others
// get their certificates from it (gbatch cert issue).
func firstCertificates(o *Options, cfg *conf.Config) error {
	first := o.Name == cfg.Controllers[0].Name
	if first && missing(filepath.Join(o.PKI, "ca.crt")) && missing(filepath.Join(o.PKI, "ca.key")) &&
		missing(filepath.Join(o.Dir, "raft.db")) {
		if err := pki.InitCA(o.PKI, cfg.ClusterName); err != nil {
			return err
		}
		o.Logger.Info("made the cluster's certificate authority", "dir", o.PKI)
		if err := markBegin(o.Dir); err != nil { // nobody has a certificate: no cluster can be there
			return err
		}
	}
	crt, err := ownCertificate(o, cfg)
	if crt != "" {
		o.Logger.Info("issued this controller's certificate", "file", crt)
	}
	return err
}

// ownCertificate makes this controller's certificate where the authority is, if there is none that is valid. It gives
// the file, "" if nothing was made.
func ownCertificate(o *Options, cfg *conf.Config) (string, error) {
	crt := filepath.Join(o.PKI, pki.RoleCtld+"-"+o.Name+".crt")
	expired := false
	if h, err := pki.CertFile(crt); err == nil {
		expired = time.Now().After(h.Until)
	}
	if !(missing(crt) || expired) || missing(filepath.Join(o.PKI, "ca.key")) {
		return "", nil
	}
	host, _, err := net.SplitHostPort(cfgAddr(cfg, o.Name))
	if err != nil {
		return "", err
	}
	life := time.Duration(cfg.CertificateLifetimeS) * time.Second
	return crt, pki.IssueFor(life, o.PKI, pki.RoleCtld, o.Name, []string{host}, o.PKI)
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

func cfgAddr(cfg *conf.Config, name string) string {
	for _, c := range cfg.Controllers {
		if c.Name == name {
			return c.Addr
		}
	}
	return ""
}
