package noded

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
	"gbatch/internal/logfile"
	"gbatch/internal/rpc/pki"
	"gbatch/noded/gpu"
	"gbatch/noded/hardware"
)

// main.go is the program gnoded, and what it prints of the machine with -C and -G.

// Main is the program gnoded: it reads the configuration, sets up the log and runs until ctx ends. Before anything else
// the program's main function must call gpu.HelperMain and fence.Main.
func Main(ctx context.Context, f Flags, stderr io.Writer) (err error) {
	path := f.Conf
	if path == "" {
		if path, err = locate.Config(os.Getenv); err != nil {
			return err
		}
	}
	c, problems := conf.LoadFile(path)
	for _, p := range problems {
		if p.Severity == conf.Error {
			err = errors.Join(err, errors.New(p.String()))
		}
	}
	if err != nil {
		return err
	}
	o, err := FromConfig(c, f)
	if err != nil {
		return err
	}
	l, err := logfile.Open(conf.ExpandPath(c.SlurmdLogFile, o.Name, o.Host), stderr, c.SlurmdDebug,
		c.LogFormat)
	if err != nil {
		return fmt.Errorf("open the log (SlurmdLogFile): %w", err)
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	o.Logger, o.LogFormat, o.GPUs = l.Logger(), c.LogFormat, gpu.NVML(gpu.NVMLOptions{})
	if o.Verdict, err = os.Executable(); err != nil {
		return fmt.Errorf("find my own program: %w", err)
	}
	n, err := New(o)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with Run
		defer close(done)
		hangups(ctx, f.Hangup, path, l, o.Logger)
	}()
	err = n.Run(ctx) // which closes n
	stop()
	<-done
	return err
}

// Join gets this host's certificate with a token. It needs no configuration if the command line has a name and a
// directory.
func Join(ctx context.Context, f Flags, say io.Writer) error {
	role := pki.RoleNode
	if f.Login {
		role = pki.RoleLogin
	}
	if f.PKI == "" {
		path := f.Conf
		if path == "" {
			var err error
			if path, err = locate.Config(os.Getenv); err != nil {
				return fmt.Errorf("where the certificate belongs: give a directory with --pki (%w)", err)
			}
		}
		c, _ := conf.LoadFile(path)
		if c == nil {
			return fmt.Errorf("%s has errors (see `gbatch check`); give the certificate's directory with --pki", path)
		}
		f.PKI = c.PKIDir
	}
	if f.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("name of this host: %w", err)
		}
		f.Name, _, _ = strings.Cut(host, ".")
	}
	return certs.JoinHost(ctx, f.Join, role, f.Name, f.PKI, say)
}

// hangups answers SIGHUP until ctx ends: the log is opened anew, with the level that the configuration has now.
func hangups(ctx context.Context, signals <-chan os.Signal, path string, l *logfile.Log, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-signals:
		}
		if err := l.Reopen(); err != nil {
			log.Error("the log could not be opened anew; it goes on in the old file", "err", err)
		}
		log.Info("SIGHUP: the log is open; what the cluster has configured comes from the leader")
		if c, _ := conf.LoadFile(path); c != nil {
			l.SetLevel(c.SlurmdDebug)
		} else {
			log.Error("the configuration has errors: the level of the log stays", "file", path)
		}
	}
}

// PrintHardware writes what this machine has as a NodeName line for gbatch.conf. GPUs are looked for as for PrintGres;
// the node's configured hardware is ignored.
func PrintHardware(f Flags, w io.Writer) error {
	o, err := lookOf(f)
	if err != nil {
		return err
	}
	return hardware.PrintNode(o, w)
}

// PrintGres writes the GPUs that this machine has as lines for gres.conf. AutoDetect of the configuration says how to
// find them, if there is one.
func PrintGres(f Flags, w io.Writer) error {
	o, err := lookOf(f)
	if err != nil {
		return err
	}
	return hardware.PrintGres(o, w)
}

// lookOf is for a look at the machine: a configuration is used if there is one, and must be right if it was
// named.
func lookOf(f Flags) (*hardware.Look, error) {
	o := &hardware.Look{Name: f.Name, Virtual: f.Virtual, TmpFS: os.TempDir(), GPUs: gpu.NVML(gpu.NVMLOptions{})}
	path := f.Conf
	if path == "" {
		path, _ = locate.Config(os.Getenv) // a machine that is no node yet has none
	}
	if path != "" {
		c, problems := conf.LoadFile(path)
		for _, p := range problems {
			if p.Severity == conf.Error && f.Conf != "" {
				return o, errors.New(p.String())
			}
		}
		if c != nil {
			o.Config, o.ConfigPath = c, c.Path
		}
	}
	if o.Name == "" {
		host, err := os.Hostname()
		if err != nil {
			return o, fmt.Errorf("name of this host: %w", err)
		}
		o.Name, _, _ = strings.Cut(host, ".")
	}
	return o, nil
}
