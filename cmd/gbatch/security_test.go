package main

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"gbatch/internal/conf"
	"gbatch/internal/model"
	"gbatch/internal/model/container"
	"gbatch/internal/rpc/pki"
)

// TestSecurityFindings: what others can read or change is an error, what lasts too long a note, and a host without any
// of it has neither.
func TestSecurityFindings(t *testing.T) {
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(pki.InitCA(dir, "c"))
	must(pki.Issue(dir, pki.RoleNode, "n1", nil, dir))
	alert, key := filepath.Join(dir, "alert"), filepath.Join(dir, "node-n1.key")
	must(os.WriteFile(alert, nil, 0o700))
	sys := filepath.Join(dir, "sys")
	must(os.MkdirAll(filepath.Join(sys, "fs"), 0o755))
	must(os.WriteFile(filepath.Join(sys, "fs", "protected_fifos"), []byte("0\n"), 0o600))
	beside := filepath.Join(dir, "partitions.conf")
	must(os.WriteFile(beside, nil, 0o600))
	must(os.WriteFile(filepath.Join(dir, "http.key"), nil, 0o600))
	must(os.WriteFile(filepath.Join(dir, "tokens"), nil, 0o600))
	wide := conf.Config{CertificateLifetimeS: 500 * 86400, Controllers: []conf.Controller{{Name: "c1", Addr: "[::]:6817"}},
		Files: []string{beside}, LoginRights: model.RightsOperator, NodeMetricsListen: "9400",
		SlurmctldParameters: "x,allow_user_triggers",
		HTTP: conf.HTTP{Listen: "6820", TLS: "no", Key: filepath.Join(dir, "http.key"), JWTKey: filepath.Join(dir, "tokens"),
			JWKS: alert}, OCI: container.Runtime{Run: alert + " run %n"}}
	tight := conf.Config{SlurmUser: "gbatch", PrivateData: []string{"jobs"}, LoginHosts: []string{"login"},
		Controllers: []conf.Controller{{Name: "c1", Addr: "127.0.0.1:6817"}}}
	look := func(c conf.Config) (found []string) {
		c.Path, c.PKIDir, c.AlertProgram, c.StateSaveLocation = alert, dir, alert, sys
		a := &audit{cfg: &c, sys: sys}
		a.keys()
		a.files()
		a.dirs()
		a.settings()
		a.kernel()
		for _, f := range a.list {
			found = append(found, f.Severity+" "+f.About)
			if f.Fix == "" || f.Text == "" {
				t.Errorf("%+v", f)
			}
		}
		return found
	}
	open := []string{"error keys", "error AlertProgram", "warning StateSaveLocation", "note certificates",
		"warning kernel", "note SlurmUser", "note PrivateData", "note LoginHosts", "warning CertificateLifetime",
		"warning SlurmctldHost", "note SlurmdPort", "error configuration", "error HttpKey", "error jwt_key", "error jwks",
		"warning jwks", "error RunTimeRun", "warning LoginRights", "note allow_user_triggers", "warning HttpListen",
		"note NodeMetricsListen"}
	must(os.Chmod(key, 0o644))
	must(os.Chmod(alert, 0o777))
	must(os.Chmod(beside, 0o666))
	must(os.Chmod(filepath.Join(dir, "http.key"), 0o644))
	must(os.Chmod(filepath.Join(dir, "tokens"), 0o644))
	found := look(wide)
	for _, want := range open {
		if !slices.Contains(found, want) {
			t.Errorf("%q is not among %q", want, found)
		}
	}
	must(os.Chmod(key, 0o600))
	for _, path := range []string{alert, beside, filepath.Join(dir, "http.key"), filepath.Join(dir, "tokens")} {
		must(os.Chmod(path, 0o700))
	}
	tight.Files, tight.HTTP = []string{beside}, wide.HTTP
	tight.HTTP.JWTAudience, tight.HTTP.TLS = "gbatch", "yes"
	must(os.Chmod(sys, 0o700))
	must(os.WriteFile(filepath.Join(sys, "fs", "protected_fifos"), []byte("2\n"), 0o600))
	must(pki.IssueFor(1e9*3600, dir, pki.RoleNode, "n1", nil, dir))
	if found := look(tight); len(found) > 0 {
		t.Errorf("a host that leaves nothing open has %q", found)
	}
}

// TestEveryProgramIsLookedAt: each key of the configuration that names a program is among those that gbatch check
// --security looks at.
func TestEveryProgramIsLookedAt(t *testing.T) {
	c := &conf.Config{}
	isProgram := regexp.MustCompile("Prog$|Program$|(rolog|pilog)(Slurmctld)?$|Helper$|^(Suspend|Resume|ResumeFail)$")
	want := 0
	set := func(v reflect.Value) {
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if !isProgram.MatchString(name) {
				continue
			}
			switch f := v.Field(i); {
			case f.Kind() == reflect.String:
				f.SetString("/" + name)
				want++
			case f.Type() == reflect.TypeFor[[]string]():
				f.Set(reflect.ValueOf([]string{"/" + name}))
				want++
			}
		}
	}
	set(reflect.ValueOf(c).Elem())
	set(reflect.ValueOf(&c.Power).Elem())
	got := map[string]bool{}
	for _, p := range programs(c) {
		for _, path := range p.paths {
			if path == "" || got[path] {
				t.Errorf("%s has %q", p.key, path)
			}
			got[path] = true
		}
	}
	if want < 20 || len(got) != want {
		t.Errorf("%d of %d programs are looked at: %v", len(got), want, got)
	}
}
