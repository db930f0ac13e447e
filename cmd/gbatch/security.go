package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/rpc/pki"
)

// security.go is gbatch check --security: what this host and its configuration leave open, each with the way out.

// finding is one thing that is open.
type finding struct {
	About    string `json:"about"`
	Severity string `json:"severity"` // error: somebody can use it now; warning; note
	Text     string `json:"text"`
	Fix      string `json:"fix"`
}

type audit struct {
	cfg  *conf.Config
	sys  string // of /proc/sys
	list []finding
}

func (a *audit) add(severity, about, fix, format string, args ...any) {
	a.list = append(a.list, finding{about, severity, fmt.Sprintf(format, args...), fix})
}

// longLife is a life of a certificate from which it is called long.
const longLife = 366 * 24 * time.Hour

// checkSecurity prints the findings. It fails if one is an error.
func checkSecurity(cfg *conf.Config, asJSON bool) error {
	a := &audit{cfg: cfg, sys: "/proc/sys"}
	a.keys()
	a.files()
	a.dirs()
	a.settings()
	a.kernel()
	n := map[string]int{}
	for _, f := range a.list {
		n[f.Severity]++
	}
	if asJSON {
		if a.list == nil {
			a.list = []finding{}
		}
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		if err := e.Encode(map[string]any{"findings": a.list, "errors": n["error"], "warnings": n["warning"],
			"notes": n["note"]}); err != nil {
			return err
		}
	} else {
		for _, f := range a.list {
			fmt.Printf("%s: %s: %s\n    %s\n", f.Severity, f.About, f.Text, f.Fix)
		}
		fmt.Printf("%s: %s, %s, %s\n", cfg.Path, plural(n["error"], "error"), plural(n["warning"], "warning"),
			plural(n["note"], "note"))
	}
	if n["error"] > 0 {
		return errSilent
	}
	return nil
}

// keys looks at the private keys and certificates on this host.
func (a *audit) keys() {
	dir := a.cfg.PKIDir
	for _, path := range pki.KeyFiles(dir) {
		if st, err := os.Lstat(path); err == nil && st.Mode().Perm()&0o077 != 0 {
			a.add("error", "keys", "chmod 600 "+path+", and new ones if somebody may have read it (gbatch cert revoke, token)",
				"%s has mode %04o: others can read or replace this private key", path, st.Mode().Perm())
		}
	}
	for _, k := range [][2]string{{"HttpKey", a.cfg.HTTP.Key}, {"jwt_key", a.cfg.HTTP.JWTKey}} {
		if k[1] == "" {
			continue
		}
		a.notWritable(k[0], k[1])
		const others = 0o027 // a group may read: of SlurmUser, or of the site's certificates
		if st, err := os.Stat(k[1]); err == nil && st.Mode().Perm()&others != 0 {
			a.add("error", k[0], "chmod 640 "+k[1]+", and a new one if somebody may have read it",
				"%s has mode %04o: others can read or replace this secret", k[1], st.Mode().Perm())
		}
	}
	if a.cfg.HTTP.JWKS != "" {
		a.notWritable("jwks", a.cfg.HTTP.JWKS)
	}
	certs, err := filepath.Glob(filepath.Join(dir, "*.crt"))
	if err != nil {
		return
	}
	for _, path := range certs {
		h, err := pki.CertFile(path)
		if err != nil || h.Role == "" {
			continue
		}
		switch {
		case time.Now().After(h.Until):
			a.add("warning", "certificates", fmt.Sprintf("gbatch cert token %s %s, and --join there", h.Role, h.Name),
				"%s expired on %s", path, h.Until.Format(time.DateOnly))
		case h.Life() > longLife:
			a.add("note", "certificates", fmt.Sprintf("gbatch cert token %s %s and --join there; then gbatch cert revoke %s",
				h.Role, h.Name, h.Serial), "%s was made for %d days: whoever copied its key has it until %s", path,
				int(h.Life().Hours()/24), h.Until.Format(time.DateOnly))
		}
	}
	if host, err := os.Hostname(); err == nil && pki.HasAuthority(dir) {
		if _, is := a.cfg.Controller(host); !is && len(a.cfg.Controllers) > 1 {
			a.add("warning", "authority", "keep ca.key on a controller, and a copy where no network goes",
				"the authority's key is on this host, which is no controller of the configuration")
		}
	}
}

// files looks at what daemons run and read as root.
func (a *audit) files() {
	c := a.cfg
	a.notWritable("configuration", c.Path)
	for _, path := range c.Files { // those that it includes, and those beside it
		if path != c.Path {
			a.notWritable("configuration", path)
		}
	}
	for key, line := range map[string]string{"RunTimeRun": c.OCI.Run, "RunTimeKill": c.OCI.Kill,
		"RunTimeDelete": c.OCI.Delete} {
		if path := command(line); path != "" {
			a.notWritable(key, path)
		}
	}
	for _, p := range programs(c) {
		for _, path := range p.paths {
			if path != "" {
				a.notWritable(p.key, path)
			}
		}
	}
}

// siteProgram is a key of the configuration and the programs that it names.
type siteProgram struct {
	key   string
	paths []string
}

// programs are what daemons run as root, and what daemons or commands run as whoever has a job.
func programs(c *conf.Config) []siteProgram {
	one := func(key, path string) siteProgram { return siteProgram{key, []string{path}} }
	return []siteProgram{{"Prolog", c.Prolog}, {"Epilog", c.Epilog}, {"PrologSlurmctld", c.PrologSlurmctld},
		{"EpilogSlurmctld", c.EpilogSlurmctld}, one("TaskProlog", c.TaskProlog), one("TaskEpilog", c.TaskEpilog),
		one("HealthCheckProgram", c.HealthCheckProgram), one("UnkillableStepProgram", c.UnkillableStepProgram),
		one("MailProg", c.MailProg), one("AlertProgram", c.AlertProgram), one("GpuRecoverProgram", c.GpuRecoverProgram),
		one("MigProgram", c.MigProgram), one("JobSubmitProgram", c.JobSubmitProgram),
		one("JobEventProgram", c.JobEventProgram), one("CliFilterProgram", c.CliFilterProgram),
		one("RebootProgram", c.RebootProgram), one("GresHelper", c.GresHelper), one("SuspendProgram", c.Power.Suspend),
		one("ResumeProgram", c.Power.Resume), one("ResumeFailProgram", c.Power.ResumeFail),
		one("SrunProlog", c.SrunProlog), one("SrunEpilog", c.SrunEpilog), one("SlurmctldPrimaryOnProg", c.PrimaryOnProg),
		one("SlurmctldPrimaryOffProg", c.PrimaryOffProg), one("ResvProlog", c.ResvProlog), one("ResvEpilog", c.ResvEpilog)}
}

// command gives the program of a command line of oci.conf, "" for one that is looked for in PATH.
func command(line string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	if !filepath.IsAbs(first) {
		return ""
	}
	return first
}

// notWritable wants a file, and all directories above it, to be root's or SlurmUser's alone to change.
func (a *audit) notWritable(about, path string) {
	paths := []string{path}
	if strings.ContainsAny(path, "*?") {
		if list, err := filepath.Glob(path); err == nil {
			paths = list
		}
	}
	for _, path := range paths {
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			if !errors.Is(err, fs.ErrNotExist) { // it may be on other hosts only
				a.add("note", about, "look at it by hand", "%s can't be looked at: %v", path, err)
			}
			continue
		}
		for at := real; ; at = filepath.Dir(at) {
			st, err := os.Stat(at)
			if err != nil {
				break
			}
			open := st.Mode().Perm()&0o022 != 0 && (at == real || st.Mode()&fs.ModeSticky == 0)
			owner := uint32(0)
			if sys, ok := st.Sys().(*syscall.Stat_t); ok {
				owner = sys.Uid
			}
			if open {
				a.add("error", about, "chmod go-w "+at, "%s has mode %04o: others can change what daemons run or read as root",
					at, st.Mode().Perm())
			} else if owner != 0 && int(owner) != os.Geteuid() {
				a.add("warning", about, "chown root "+at, "%s belongs to uid %d, who can change what daemons run or read", at,
					owner)
			}
			if at == "/" || at == "." {
				break
			}
		}
	}
}

// dirs looks at the directories of state.
func (a *audit) dirs() {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	for _, d := range []struct {
		key, path string
		most      fs.FileMode
	}{{"StateSaveLocation", conf.ExpandPath(a.cfg.StateSaveLocation, host, host), 0o700},
		{"DbdStateLocation", a.cfg.DbdStateLocation, 0o700},
		{"SlurmdSpoolDir", conf.ExpandPath(a.cfg.SlurmdSpoolDir, host, host), 0o711},
		{"LocalSocketDir", a.cfg.LocalSocketDir, 0o755}, {"PKIDir", a.cfg.PKIDir, 0o755}} {
		st, err := os.Stat(d.path)
		if d.path == "" || err != nil {
			continue // not on this host
		}
		if more := st.Mode().Perm() &^ d.most; more != 0 {
			severity := "warning"
			if more&0o022 != 0 {
				severity = "error"
			}
			a.add(severity, d.key, fmt.Sprintf("chmod %o %s", d.most, d.path), "%s has mode %04o, and needs %04o at most",
				d.path, st.Mode().Perm(), d.most)
		}
	}
}

// settings looks at the configuration.
func (a *audit) settings() {
	c := a.cfg
	if c.SlurmUser == "" || c.SlurmUser == "root" {
		a.add("note", "SlurmUser", "SlurmUser=gbatch, a user of its own, for gctld and gdbd",
			"gctld and gdbd run as root, which they don't need")
	}
	if len(c.PrivateData) == 0 {
		a.add("note", "PrivateData", "PrivateData=jobs,usage,users,accounts",
			"every user sees every other user's jobs and usage")
	}
	if len(c.LoginHosts) == 0 {
		a.add("note", "LoginHosts", "LoginHosts= with the login hosts' names",
			"any login certificate of this cluster may pass users' requests on, whatever its name")
	}
	if c.CertificateLifetimeS > int64(longLife/time.Second) {
		a.add("warning", "CertificateLifetime", "CertificateLifetime=30-0; daemons renew theirs while they run",
			"certificates are issued for %d days", c.CertificateLifetimeS/86400)
	}
	if c.LoginRights > model.RightsUser {
		a.add("warning", "LoginRights", "LoginRights=user; operators work on a controller",
			"who is root on a login host has the rights of every %s of the cluster", c.LoginRights)
	}
	if strings.Contains(","+strings.ToLower(c.SlurmctldParameters)+",", ",allow_user_triggers,") {
		a.add("note", "allow_user_triggers", "SlurmctldParameters= without it, unless users need it",
			"users' programs run on the controllers' hosts (gtrigger)")
	}
	if c.HTTP.JWKS != "" && c.HTTP.JWTAudience == "" {
		a.add("warning", "jwks", "AuthAltParameters=...,jwt_audience=NAME of this service at the identity provider",
			"tokens that the identity provider made for other services count here")
	}
	for _, ctl := range c.Controllers {
		if everywhere(ctl.Addr) {
			a.add("warning", "SlurmctldHost", "SlurmctldHost="+ctl.Name+"(ADDRESS) of the cluster's network",
				"controller %s listens on all addresses", ctl.Name)
		}
		if at := c.HTTP.HTTPAddr(ctl.Name, ctl.Addr); everywhere(at) {
			severity, text := "note", "controller %s serves HTTP on all addresses"
			if c.HTTP.TLS == "no" {
				severity, text = "warning", text+", without TLS: tokens can be read on the way"
			}
			a.add(severity, "HttpListen", "HttpListen=ADDRESS:PORT, of the proxy's or the cluster's network", text, ctl.Name)
		}
	}
	if at := conf.NodeMetricsAddr(c); at != "" && everywhere(at) {
		a.add("note", "NodeMetricsListen", "let a firewall admit Prometheus only, or NodeMetricsListen=NONE",
			"each node tells everybody who can reach %s which jobs use its GPUs", at)
	}
	if !slices.ContainsFunc(c.Controllers, func(ctl conf.Controller) bool {
		host, _, err := net.SplitHostPort(ctl.Addr)
		ip := net.ParseIP(host)
		return err != nil || ip == nil || !ip.IsLoopback()
	}) {
		return // all on this machine
	}
	port := "its port (SlurmdPort= sets one)"
	if c.SlurmdPort != 0 {
		port = fmt.Sprintf("port %d", c.SlurmdPort)
	}
	a.add("note", "SlurmdPort", "let a firewall admit only the cluster's hosts to "+port,
		"gnoded listens on all addresses of a node for other nodes; their certificates are checked")
}

// everywhere reports whether an address, host:port, is that of all networks.
func everywhere(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || ip != nil && ip.IsUnspecified())
}

// kernel looks at the settings that keep users from traps in shared directories.
func (a *audit) kernel() {
	for _, s := range []struct{ name, want, why string }{
		{"protected_symlinks", "1", "links that other users put into /tmp are followed"},
		{"protected_hardlinks", "1", "users can link to files that they can't write"},
		{"protected_fifos", "12", "programs can be made to open other users' FIFOs in /tmp"},
		{"protected_regular", "12", "programs can be made to open other users' files in /tmp for writing"},
	} {
		data, err := os.ReadFile(filepath.Join(a.sys, "fs", s.name))
		if err != nil {
			continue // this kernel has no such setting
		}
		if v := strings.TrimSpace(string(data)); v == "" || !strings.Contains(s.want, v) {
			a.add("warning", "kernel", "sysctl -w fs."+s.name+"="+s.want[:1]+", and in /etc/sysctl.d", "fs.%s=%s: %s", s.name, v,
				s.why)
		}
	}
}
