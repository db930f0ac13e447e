package control

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// errSaid ends with status 1 when all has been said.
var errSaid = errors.New("")

// importing is what gcontrol import is asked for.
type importing struct {
	file, output string
	nodes        []string
}

// bring is gcontrol import -f FILE. Its work is gbatch's: a command that starts in a few milliseconds reads no YAML.
func (c *control) bring(words []string) error {
	args := []string{"import", "--pools", c.pools.file}
	for _, w := range words {
		if w != "--dry-run" {
			return fmt.Errorf("'%s': import takes one file, -f FILE; -O DIRECTORY is where its scripts go", w)
		}
		args = append(args, w)
	}
	if c.pools.file == "" {
		return errors.New("import what? -f FILE names a file of YAML; a Slurm installation is carried over by gbatch import")
	}
	for _, n := range c.pools.nodes {
		args = append(args, "--nodes", n)
	}
	if c.pools.output != "" {
		args = append(args, "-o", c.pools.output)
	}
	if c.json != "" {
		args = append(args, "--json")
	}
	program, err := beside("gbatch")
	if err != nil {
		return err
	}
	cmd := exec.Command(program, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env, cmd.Dir = c.Stdin, c.Stdout, c.Stderr, c.Environ, c.Dir
	err = cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return errSaid // gbatch has printed why
	}
	return err
}

// beside finds a program in this one's directory, or in PATH.
func beside(name string) (string, error) {
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("the program %s, which reads the file, is not on this host: install it, or run this on a "+
			"controller", name)
	}
	return path, nil
}
