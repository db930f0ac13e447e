package dbd

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gbatch/internal/conf"
	"gbatch/internal/proto"
)

const sampleConf = `ClusterName=c
SlurmctldHost=ctl(127.0.0.1)
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=%host
AccountingStoragePort=7777
DbdStateLocation=%dir/db
PKIDir=%dir/pki
NodeName=n1 CPUs=1
PartitionName=p Nodes=n1 Default=YES
`

// writeConf writes a configuration with extra lines and gives its path.
func writeConf(t *testing.T, dir, host string, extra ...string) string {
	t.Helper()
	text := strings.NewReplacer("%host", host, "%dir", dir).Replace(sampleConf) + strings.Join(extra, "\n") + "\n"
	path := filepath.Join(dir, "gbatch.conf")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConfigure(t *testing.T) {
	for host, listen := range map[string]string{
		"127.0.0.1": "127.0.0.1:7777", "localhost": "localhost:7777", "acct.example.org": ":7777", "::1": "[::1]:7777",
	} {
		dir := t.TempDir()
		c, problems := conf.LoadFile(writeConf(t, dir, host))
		if c == nil {
			t.Fatal(problems)
		}
		var o Options
		if err := o.Configure(c); err != nil {
			t.Fatal(err)
		}
		if o.Listen != listen || o.Dir != dir+"/db" || o.PKI != dir+"/pki" || o.Name == "" || strings.Contains(o.Name, ".") {
			t.Errorf("%s: %+v", host, o)
		}
		given := Options{Name: "a", Listen: "b", Dir: "c", PKI: "d"}
		o = given
		if err := o.Configure(c); err != nil || o.Listen != given.Listen || o.Dir != given.Dir || o.PKI != given.PKI ||
			o.Name != given.Name {
			t.Errorf("%+v, %v", o, err)
		}
	}
}

// TestStart runs the program as cmd/gdbd does, with its configuration and a log file.
func TestStart(t *testing.T) {
	dir := t.TempDir()
	certificates(t, filepath.Join(dir, "pki"))
	logFile := filepath.Join(dir, "gdbd.log")
	path := writeConf(t, dir, "127.0.0.1", "DbdLogFile="+logFile, "DbdDebug=debug2")
	s := Start{Conf: path, Options: Options{Name: "acct", Listen: "127.0.0.1:0"}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx, t.Output()) }()
	m := mustDial(t, waitForAddr(t, logFile), filepath.Join(dir, "pki"))
	if _, err := m.Call(t.Context(), proto.KindPing, nil); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(logFile)
	if err != nil || !strings.Contains(string(text), "accounting daemon ends") {
		t.Errorf("%s %v", text, err)
	}

	// What goes wrong later is in the log as well.
	if err := os.WriteFile(filepath.Join(dir, "db", fileName), []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = Start{Conf: dir, Options: Options{Name: "acct", Listen: "127.0.0.1:0"}}
	if err := s.Run(t.Context(), t.Output()); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Error(err)
	}
	if text, err := os.ReadFile(logFile); err != nil || !strings.Contains(string(text), "is damaged") {
		t.Errorf("%s %v", text, err)
	}
}

func waitForAddr(t *testing.T, logFile string) string {
	t.Helper()
	for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		text, err := os.ReadFile(logFile)
		if err != nil {
			continue // not yet
		}
		if found := regexp.MustCompile(`accounting daemon runs" addr=(\S+)`).FindSubmatch(text); found != nil {
			return string(found[1])
		}
	}
	t.Fatal("gdbd doesn't run")
	return ""
}

func TestStartRefusals(t *testing.T) {
	t.Setenv("GBATCH_CONF", "")
	t.Setenv("SLURM_CONF", "")
	t.Setenv("GBATCH_HOME", t.TempDir())
	dir := t.TempDir()
	bad := writeConf(t, dir, "127.0.0.1", "DbdDebug=loud", "NodeName=")
	for want, s := range map[string]Start{
		"can't be used as it is": {Conf: bad},
		"/nowhere":               {Conf: "/nowhere"},
		"no configuration found": {Options: Options{Name: "acct"}},
		// Complete without a configuration: only the certificate is missing.
		"ca.crt": {Options: Options{Name: "acct", Listen: ":0", Dir: dir, PKI: dir}},
	} {
		var stderr bytes.Buffer
		err := s.Run(t.Context(), &stderr)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		if s.Conf == bad && strings.Count(stderr.String(), bad+":") < 2 {
			t.Errorf("stderr: %s", stderr.String())
		}
	}
}
