package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gbatch/internal/migrate"
)

// files reads a directory of configuration files and writes ours, if a directory for them was given.
func (o *importOptions) files(dir string, r *migrate.Report) (said string, err error) {
	work, err := os.MkdirTemp("", "gbatch-import-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	f, err := migrate.ReadFiles(dir, work, r)
	if err != nil {
		return "", err
	}
	what := fmt.Sprintf("%s with %s and %s", strings.Join(f.Names(), ", "), plural(f.Nodes, "node"),
		plural(f.Partitions, "partition"))
	if o.output == "" || o.dryRun {
		return "configuration: " + what + "; -o DIRECTORY writes it", nil
	}
	if err := o.write(f); err != nil {
		return "", err
	}
	return "configuration: wrote " + what + " to " + o.output, nil
}

// write writes the files, all or none. A file that is there is left alone without --force.
func (o *importOptions) write(f *migrate.Files) error {
	if err := os.MkdirAll(o.output, 0o755); err != nil {
		return err
	}
	if !o.force {
		for _, name := range f.Names() {
			path := filepath.Join(o.output, name)
			if _, err := os.Lstat(path); err == nil {
				return fmt.Errorf("%s exists already: nothing is written; give another directory, or --force", path)
			}
		}
	}
	for _, name := range f.Names() {
		path := filepath.Join(o.output, name)
		part, err := os.CreateTemp(o.output, "."+name+".*")
		if err != nil {
			return err
		}
		_, err = part.WriteString(f.Text[name])
		err = errors.Join(err, part.Chmod(0o644), part.Sync(), part.Close())
		if err == nil {
			err = os.Rename(part.Name(), path)
		}
		if err != nil {
			return errors.Join(err, os.Remove(part.Name()))
		}
	}
	return nil
}
