// Package thishost finds what a configuration names and this host lacks: mistakes that no reading of
// the files shows, and that keep a daemon from its next start.
//
// It looks, and changes nothing. What is right on one host may be missing on another, so all it says
// is a warning, and it looks only for the daemons that belong here.
package thishost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"

	"gbatch/internal/conf"
	"gbatch/internal/rpc/pki"
)

// Daemons are those that run on this host.
type Daemons struct {
	Controller string // its name; "": there is none
	Node       string
	Dbd        bool
}

// Here gives the daemons of this host by its name.
func Here(cfg *conf.Config, host string) (d Daemons) {
	if c, ok := cfg.Controller(host); ok {
		d.Controller = c.Name
	}
	for _, n := range cfg.Nodes {
		if n.Name == host || n.Hostname == host {
			d.Node = n.Name
		}
	}
	return d
}

// Look gives what is missing for these daemons.
func Look(cfg *conf.Config, d Daemons) (out []conf.Problem) {
	warn := func(hint, format string, args ...any) {
		out = append(out, conf.Problem{File: cfg.Path, Severity: conf.Warning, Text: fmt.Sprintf(format, args...),
			Hint: hint})
	}
	host, err := os.Hostname()
	if err != nil {
		host = d.Controller
	}
	logDir := func(key, path, name, daemon string) {
		if path = conf.ExpandPath(path, name, host); path == "" {
			return
		}
		if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, fs.ErrNotExist) {
			warn("make the directory: mkdir -p "+filepath.Dir(path),
				"%s=%s: its directory is missing on this host, so %s does not start", key, path, daemon)
		}
	}
	if d.Controller != "" || d.Dbd {
		if u := cfg.SlurmUser; u != "" && unknown(u) {
			warn("create the user, or write SlurmUser=root",
				"SlurmUser=%s is unknown on this host, so gctld and gdbd do not start", u)
		}
		if d.Dbd {
			logDir("DbdLogFile", cfg.DbdLogFile, "", "gdbd")
		}
	}
	if d.Node != "" {
		logDir("SlurmdLogFile", cfg.SlurmdLogFile, d.Node, "gnoded")
	}
	if d.Controller == "" {
		return out
	}
	logDir("SlurmctldLogFile", cfg.SlurmctldLogFile, d.Controller, "gctld")
	dir := conf.ExpandPath(cfg.StateSaveLocation, d.Controller, host)
	_, caErr := os.Stat(filepath.Join(cfg.PKIDir, "ca.crt"))
	switch state := empty(dir); {
	case state && caErr == nil:
		warn("give the directory that has the state; a controller that is new, or has lost its disk, gets it from the others",
			"StateSaveLocation=%s has no state on this host: gctld would start without any", dir)
	case !state && caErr != nil:
		warn("give the directory with the certificates, or bring it from another controller's host or a backup",
			"PKIDir=%s has no certificates (%v), so gctld does not start with its state", cfg.PKIDir, caErr)
	}
	if name, err := pki.ClusterOf(cfg.PKIDir); err == nil && name != cfg.ClusterName {
		warn("write ClusterName="+name+", unless the authority was given another name on purpose",
			"ClusterName=%s, but the certificates in %s are of cluster %s", cfg.ClusterName, cfg.PKIDir, name)
	}
	return out
}

func unknown(name string) bool {
	if _, err := user.Lookup(name); err == nil {
		return false
	}
	_, err := user.LookupId(name)
	return err != nil
}

// empty reports whether a directory is missing, or has nothing in it.
func empty(dir string) bool {
	list, err := os.ReadDir(dir)
	return errors.Is(err, fs.ErrNotExist) || err == nil && len(list) == 0
}
