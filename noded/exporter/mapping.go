package exporter

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// pace is how often the files are compared with the jobs.
const pace = time.Second

// ours are the names of mapping files: a GPU's number, or GPU.INSTANCE.
var ours = regexp.MustCompile(`^[0-9]{1,4}(\.[0-9]{1,4})?$`)

// keepFiles keeps one file for each GPU: its jobs, one on a line, none if it is free.
func (e *Exporter) keepFiles(ctx context.Context) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	var have map[string]string
	said := ""
	for {
		want := e.Look().files()
		if !maps.Equal(want, have) {
			if err := e.writeFiles(want, have); err == nil {
				have, said = want, ""
			} else if have = nil; err.Error() != said {
				said = err.Error()
				e.Log.Error("which jobs have which GPU can't be written (HpcJobMappingDir); jobs are not affected", "err", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done(): // the files stay: so do the jobs
			return
		}
	}
}

// files gives names and texts.
func (s *Snapshot) files() map[string]string {
	out := map[string]string{}
	for i := range s.GPUs {
		g := &s.GPUs[i]
		name := strconv.Itoa(g.Index)
		if g.Profile != "" {
			name += "." + strconv.Itoa(g.Instance)
		}
		var b strings.Builder
		for _, id := range g.Jobs {
			b.WriteString(strconv.FormatUint(uint64(id), 10) + "\n")
		}
		out[name] = b.String()
	}
	return out
}

// writeFiles writes what has changed, and removes files of GPUs that are not there.
func (e *Exporter) writeFiles(want, have map[string]string) error {
	if err := os.MkdirAll(e.Dir, 0o755); err != nil {
		return err
	}
	if have == nil {
		list, err := os.ReadDir(e.Dir)
		if err != nil {
			return err
		}
		for _, f := range list {
			if _, wanted := want[f.Name()]; !wanted && ours.MatchString(f.Name()) && f.Type().IsRegular() {
				if err := os.Remove(filepath.Join(e.Dir, f.Name())); err != nil {
					return err
				}
			}
		}
	}
	for name, text := range want {
		if old, known := have[name]; known && old == text {
			continue
		}
		path, fresh := filepath.Join(e.Dir, name), filepath.Join(e.Dir, "."+name+".new")
		if err := writeNew(fresh, text); err != nil {
			return err
		}
		if err := os.Rename(fresh, path); err != nil {
			return err
		}
	}
	for name := range have {
		if _, wanted := want[name]; !wanted {
			if err := os.Remove(filepath.Join(e.Dir, name)); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
	}
	return nil
}

// writeNew makes a file anew; it follows no link that somebody has put there.
func writeNew(path, text string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
