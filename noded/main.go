package noded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"gbatch/internal/conf"
	"gbatch/internal/conf/locate"
	"gbatch/noded/gpu"
)

// Main is the program gnoded: it reads the configuration, sets up the log and runs until ctx ends. Before anything else
// the program's main function must call gpu.HelperMain.
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
	n, err := New(o)
	if err != nil {
		return err
	}
	return errors.Join(n.Run(ctx), n.Close())
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
	return slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: level})), closeLog, nil
}
