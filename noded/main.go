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
	"gbatch/internal/quietlog"
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
	logger, closeLog, err := openLog(c, &o, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	o.Logger, o.GPUs = logger, gpu.NVML(gpu.NVMLOptions{})
	if o.Verdict, err = os.Executable(); err != nil {
		return fmt.Errorf("find my own program: %w", err)
	}
	n, err := New(o)
	if err != nil {
		return err
	}
	return errors.Join(n.Run(ctx), n.Close())
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

// openLog opens the log that the configuration asks for, standard error without one.
func openLog(c *conf.Config, o *Options, stderr io.Writer) (*slog.Logger, func() error, error) {
	level := slog.LevelInfo
	switch c.SlurmdDebug {
	case "quiet", "fatal", "error":
		level = slog.LevelError
	case "info", "verbose":
	default: // debug to debug5
		level = slog.LevelDebug
	}
	out, closeLog := stderr, func() error { return nil }
	if path := conf.ExpandPath(c.SlurmdLogFile, o.Name, o.Host); path != "" {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
		if err != nil {
			return nil, nil, fmt.Errorf("open the log (SlurmdLogFile): %w", err)
		}
		out, closeLog = f, f.Close
	}
	return slog.New(quietlog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level}))), closeLog, nil
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
