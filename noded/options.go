package noded

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gbatch/internal/conf"
	"gbatch/internal/userdb"
	"gbatch/internal/version"
	"gbatch/noded/gpu"
	"gbatch/noded/hardware"
	"gbatch/noded/starter"
)

// Options configure one node's daemon.
type Options struct {
	Name        string           // NodeName, as in the configuration and in the certificate
	Login       bool             // a login host: relays commands, runs no jobs, isn't registered
	Virtual     bool             // its hardware is taken from the configuration
	Controllers []string         // host:port of every controller
	DbdAddr     string           // host:port of gdbd, which is asked about records; "": the leader is
	DbdCopy     string           // of its copy; "": there is none
	PKI         string           // directory with ca.crt and this daemon's certificate
	Spool       string           // absolute; what must survive a restart: one gnoded each
	LogFormat   string           // of gshim's log, one of logfile.Formats; "": text
	SocketDir   string           // of the socket for commands, noded-NAME.sock
	Shim        string           // the program gshim, absolute; not needed with Login
	Starter     *starter.Starter // starts gshim and the site's programs; nil: this process does
	Verdict     string           // the program whose main calls fence.Main, absolute; "": nothing is ended for silence

	Importer   string        // the program whose main calls image.Main and steppmix.Main, absolute; "": Verdict
	Config     *conf.Config  // the configuration, as far as this host has it; nil: none
	ConfigPath string        // its main file, which commands in jobs are told; "": none
	GPUs       gpu.Source    // source of GPUs; nil: none
	KernelRoot string        // of /proc/driver/nvidia and /sys, for AutoDetect=nvidia; "": /
	GPUEvery   time.Duration // between readings of the GPUs; 0: 5 s
	TmpFS      string        // whose size is TmpDisk; default /tmp
	Host       string        // the name that users see as theirs; default os.Hostname
	Version    string        // default internal/version
	BootID     string        // of the machine's present boot, which begins now, for tests of reboots; "": the kernel's
	People     *userdb.DB    // who users are; nil: this host's database
	Logger     *slog.Logger
}

// Flags are the command line's part of Options: what is empty comes from the configuration.
type Flags struct {
	Conf        string // main file
	Name        string
	Login       bool
	Virtual     bool
	PKI         string
	Spool       string
	Controllers []string
	SocketDir   string
	Shim        string
	Join        string // TOKEN@HOST: only get a certificate

	Hangup <-chan os.Signal // SIGHUPs: the log is opened anew; nil: none come

	Starter *starter.Starter // starts gshim and the site's programs; nil: this process does
}

// FromConfig makes Options from a configuration and the command line, which comes first.
func FromConfig(c *conf.Config, f Flags) (Options, error) {
	host, err := os.Hostname()
	if err != nil {
		return Options{}, fmt.Errorf("name of this host: %w", err)
	}
	o := Options{Name: f.Name, Login: f.Login, Virtual: f.Virtual, Controllers: f.Controllers, PKI: f.PKI, Spool: f.Spool,
		SocketDir: f.SocketDir, Shim: f.Shim, Starter: f.Starter, DbdAddr: c.DbdAddr, DbdCopy: c.DbdCopyAddr,
		Config: c, ConfigPath: c.Path,
		TmpFS: c.TmpFS, Host: host}
	if o.Name == "" {
		o.Name, _, _ = strings.Cut(host, ".")
	}
	if len(o.Controllers) == 0 {
		for _, ctl := range c.Controllers {
			o.Controllers = append(o.Controllers, ctl.Addr)
		}
	}
	o.PKI = orElse(o.PKI, c.PKIDir)
	o.Spool = orElse(o.Spool, conf.ExpandPath(c.SlurmdSpoolDir, o.Name, host))
	o.SocketDir = orElse(o.SocketDir, c.LocalSocketDir)
	if o.Shim == "" {
		self, err := os.Executable()
		if err != nil {
			return Options{}, fmt.Errorf("where gshim is: %w", err)
		}
		o.Shim = filepath.Join(filepath.Dir(self), "gshim")
	}
	for _, p := range []*string{&o.ConfigPath, &o.Spool, &o.Shim} {
		if *p == "" {
			continue
		}
		if *p, err = filepath.Abs(*p); err != nil {
			return Options{}, err
		}
	}
	return o, nil
}

// named gives the controllers' addresses by the names that the configuration has for them.
func (o *Options) named() map[string]string {
	if o.Config == nil || len(o.Config.Controllers) != len(o.Controllers) {
		return nil // the command line has others
	}
	out := map[string]string{}
	for i, ctl := range o.Config.Controllers {
		out[ctl.Name] = o.Controllers[i]
	}
	return out
}

func (o *Options) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Name == "" || strings.ContainsAny(o.Name, "/ \t\n,[]") {
		bad("'%s' is not a node name; give the one in the configuration with -N", o.Name)
	}
	if len(o.Controllers) == 0 {
		bad("no controller is known: set SlurmctldHost in the configuration, or give --controllers HOST:PORT")
	}
	for _, a := range o.Controllers {
		if _, port, err := net.SplitHostPort(a); err != nil || port == "" {
			bad("controller '%s' is not HOST:PORT", a)
		}
	}
	if !filepath.IsAbs(o.Spool) {
		bad("the spool directory '%s' is not an absolute path; give one with --spool", o.Spool)
	}
	if o.SocketDir == "" {
		bad("no directory for the local socket is known; give one with --socket-dir")
	}
	if !o.Login {
		if !filepath.IsAbs(o.Shim) {
			bad("the path of gshim '%s' is not absolute; give it with --shim", o.Shim)
		} else if st, err := os.Stat(o.Shim); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
			bad("the launcher %s is missing or can't be run; install gshim beside gnoded, or give its path with --shim", o.Shim)
		}
	}
	if o.Virtual && o.Login {
		bad("a login host has no hardware to stand in for: give --login or --virtual, not both")
	}
	o.TmpFS = orElse(o.TmpFS, os.TempDir())
	o.Version = orElse(o.Version, version.Version)
	if o.Host == "" {
		host, err := os.Hostname()
		if err != nil {
			bad("name of this host: %w", err)
		}
		o.Host = host
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return errors.Join(errs...)
}

// look gives the settings for finding the node's hardware.
func (o *Options) look() *hardware.Look {
	return &hardware.Look{Name: o.Name, Login: o.Login, Virtual: o.Virtual, Config: o.Config, ConfigPath: o.ConfigPath,
		GPUs: o.GPUs, KernelRoot: o.KernelRoot, TmpFS: o.TmpFS, BootID: o.BootID}
}
