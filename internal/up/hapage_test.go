package up

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hapage_test.go runs every command of man/gbatch-ha.7, in the order of the page, with the real programs. The page's
// hosts are directories below one root: /etc/gbatch, /var/lib/gbatch, /root and /var/backups in a command are those of
// its host. systemctl and scp are scripts that do what the page means on such hosts; all else is the real program.

// pageHosts are the hosts of the page, and their addresses in it.
var pageHosts = map[string]string{"ctl1": "192.0.2.1", "ctl2": "192.0.2.2", "ctl3": "192.0.2.3", "ctl4": "192.0.2.4",
	"db1": "192.0.2.10", "db2": "192.0.2.11", "moved3": "192.0.2.9"} // moved3: ctl3 at another address

// pageSections is how many sections have commands at least.
const pageSections = 10

// pageCommand is a line of the page such as "ctl1# gcontrol ping".
type pageCommand struct{ host, text string }

// section is one section of the page with its commands, and the lines of its examples that are no commands.
type section struct {
	name     string
	commands []pageCommand
	other    []string
}

func readPage(t *testing.T) (out []section) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "man", "gbatch-ha.7"))
	if err != nil {
		t.Fatal(err)
	}
	prompt := regexp.MustCompile(`^([a-z]+[0-9])# (.+)$`)
	example := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, ".SH "):
			out = append(out, section{name: strings.Trim(line[4:], `"`)})
		case line == ".EX" || line == ".EE":
			example = line == ".EX"
		case example:
			s := &out[len(out)-1]
			m := prompt.FindStringSubmatch(strings.ReplaceAll(line, `\-`, "-"))
			switch {
			case m == nil:
				s.other = append(s.other, line)
			case pageHosts[m[1]] == "":
				t.Fatalf("%s: the page knows no host %s", line, m[1])
			default:
				s.commands = append(s.commands, pageCommand{m[1], m[2]})
			}
		case prompt.MatchString(line):
			t.Errorf("%q is no example: put it between .EX and .EE", line)
		}
	}
	return out
}

// world has the page's hosts.
type world struct {
	t     *testing.T
	root  string
	bin   string
	ports map[string]int
}

const systemctl = `#!/bin/sh
# systemctl start|stop|restart|is-active|enable|disable [--now] UNIT, for gctld and gdbd of $HOST
verb=$1; shift; [ "$1" = --now ] && { now=1; shift; }
unit=${1%.service}; pid=$ROOT/$HOST/$unit.pid; log=$ROOT/$HOST/$unit.log
runs() { [ -s "$pid" ] && kill -0 "$(cat "$pid")" 2>/dev/null; }
start() {
	runs && return 0
	listens=$(grep -cE 'msg="(controller|accounting daemon) runs"' "$log" 2>/dev/null)
	listen= # the page's hosts have addresses of their own, by which a copy knows what it is
	[ "$HOST" != db2 ] || listen="--listen $(sed -n s/^AccountingStorageBackupHost=//p "$GBATCH_CONF")"
	setsid "$BIN/$unit" -f "$GBATCH_CONF" -N "$HOST" $listen >>"$log" 2>&1 </dev/null & echo $! >"$pid"
	for i in $(seq 50); do # a person types slower than it starts
		[ "$(grep -cE 'msg="(controller|accounting daemon) runs"' "$log")" = "${listens:-0}" ] || return 0
		sleep 0.1
	done
}
stop() {
	runs && kill "$(cat "$pid")"
	for i in $(seq 300); do runs || return 0; sleep 0.1; done
	echo "$unit of $HOST does not end" >&2; exit 1
}
case $verb in
start) start;; stop) stop;; restart) stop; start;; is-active) runs;;
enable) [ -z "$now" ] || start;; disable) [ -z "$now" ] || stop;;
*) echo "systemctl $verb: not known here" >&2; exit 1;;
esac
`

const scp = `#!/bin/sh
# scp [-r] FILE... HOST:PATH, or HOST:FILE... PATH
place() { case $1 in *:/*) echo "$ROOT/${1%%:*}${1#*:}";; *) echo "$1";; esac; }
r=; [ "$1" = -r ] && { r=-r; shift; }
for last; do :; done
to=$(place "$last")
while [ $# -gt 1 ]; do cp $r "$(place "$1")" "$to" || exit 1; shift; done
host=${to#"$ROOT/"}; host=${host%%/*}
[ ! -f "$to/gbatch.conf" ] || sed -i "s|$ROOT/[a-z0-9]*/|$ROOT/$host/|g" "$to/gbatch.conf"
`

// newWorld makes the hosts. Only ctl1 has a configuration, as the page tells to write it.
func newWorld(t *testing.T, lines []string) *world {
	w := &world{t: t, root: t.TempDir(), bin: filepath.Join(t.TempDir(), "bin"), ports: map[string]int{}}
	ports, err := drawPorts(len(pageHosts))
	if err != nil {
		t.Fatal(err)
	}
	links := map[string]string{"gbatch": "gbatch", "gcontrol": "gcli", "gqueue": "gcli",
		"gsubmit": "gcli", "gacct": "gcli", "gacctmgr": "gcli", "gdiag": "gcli", "ginfo": "gcli"}
	err = os.Mkdir(w.bin, 0o755)
	for name, program := range links {
		err = errors.Join(err, os.Symlink(filepath.Join(programs(t), program), filepath.Join(w.bin, name)))
	}
	for _, name := range []string{"gctld", "gdbd"} { // they are called by their host's name
		text := fmt.Sprintf("#!/bin/sh\nexec %s -N $HOST \"$@\"\n", filepath.Join(programs(t), name))
		err = errors.Join(err, os.WriteFile(filepath.Join(w.bin, name), []byte(text), 0o755))
	}
	err = errors.Join(err, os.WriteFile(filepath.Join(w.bin, "systemctl"), []byte(systemctl), 0o755),
		os.WriteFile(filepath.Join(w.bin, "scp"), []byte(scp), 0o755))
	for host := range pageHosts {
		for _, dir := range []string{"etc/gbatch", "var/lib/gbatch", "var/backups", "root", "run"} {
			err = errors.Join(err, os.MkdirAll(filepath.Join(w.root, host, dir), 0o755))
		}
		w.ports[host], ports = ports[0], ports[1:]
	}
	at := func(path string) string { return filepath.Join(w.root, "ctl1", path) }
	conf := append([]string{"ClusterName=page"}, lines...)
	conf = append(conf, "StateSaveLocation="+at("var/lib/gbatch/ctld"), "PKIDir="+at("etc/gbatch/pki"),
		"LocalSocketDir="+at("run"), "DbdStateLocation="+at("var/lib/gbatch/dbd"), "SlurmUser=root",
		"AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageHost=127.0.0.1",
		"AccountingStoragePort="+strconv.Itoa(w.ports["db1"]), "NodeName=n1 CPUs=4", "PartitionName=p Nodes=n1 Default=YES")
	err = errors.Join(err, os.WriteFile(w.conf("ctl1"), []byte(w.addresses(strings.Join(conf, "\n"))+"\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.end)
	return w
}

func (w *world) conf(host string) string {
	return filepath.Join(w.root, host, "etc/gbatch/gbatch.conf")
}

// addresses puts the hosts' true addresses in the place of the page's.
func (w *world) addresses(s string) string {
	for host, addr := range pageHosts {
		at := net.JoinHostPort(loopback, strconv.Itoa(w.ports[host]))
		s = strings.ReplaceAll(s, addr+")", at+")")
		// A whole address: 192.0.2.1 isn't the beginning of 192.0.2.11.
		s = regexp.MustCompile(`(BackupHost=)`+regexp.QuoteMeta(addr)+`\b`).ReplaceAllString(s, "${1}"+at)
	}
	return s
}

var pagePath = regexp.MustCompile(`(^|[^:\w])(/(?:etc/gbatch|var/lib/gbatch|var/backups|root)\b)`)

// run runs one command on its host.
func (w *world) run(c pageCommand) (string, error) {
	const longest = 90 * time.Second
	ctx, cancel := context.WithTimeout(w.t.Context(), longest)
	defer cancel()
	text := pagePath.ReplaceAllString(w.addresses(c.text), "${1}"+filepath.Join(w.root, c.host)+"${2}")
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", text)
	cmd.Env = []string{"PATH=" + w.bin + ":/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + filepath.Join(w.root, c.host, "root"),
		"GBATCH_CONF=" + w.conf(c.host), "HOST=" + c.host, "ROOT=" + w.root, "BIN=" + w.bin}
	cmd.Dir = filepath.Join(w.root, c.host, "root")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // a daemon that it started has its output
	}
	w.t.Logf("%s# %s\n%s", c.host, c.text, out)
	return string(out), err
}

// end ends all daemons.
func (w *world) end() {
	files, err := filepath.Glob(filepath.Join(w.root, "*", "*.pid"))
	if err != nil {
		w.t.Error(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		pid, nerr := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil || nerr != nil {
			w.t.Error(err, nerr)
			continue
		}
		if p, ok := processOf(pid); ok {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended just now
			until(w.t, fmt.Sprintf("%s is gone", f), func() bool { return !p.runs() })
		}
	}
	if !w.t.Failed() {
		return
	}
	logs, _ := filepath.Glob(filepath.Join(w.root, "*", "*.log"))
	for _, f := range logs {
		w.t.Logf("%s:\n%s", f, tail(f, 2*tailLines))
	}
}

// TestHighAvailabilityPage: what man/gbatch-ha.7 tells works as written: a cluster begins, is looked at, loses, gets
// and changes controllers, is upgraded, backed up and restored, and still has the job of its beginning.
func TestHighAvailabilityPage(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("the page's commands are root's")
	}
	page := readPage(t)
	var conf []string
	n := 0
	for _, s := range page {
		if s.name == "BEGIN A CLUSTER" {
			conf = s.other
		}
		if len(s.commands) > 0 {
			n++
		}
	}
	if n < pageSections || len(conf) != 3 {
		t.Fatalf("%d sections have commands, of at least %d; the first configuration is %q", n, pageSections, conf)
	}
	w := newWorld(t, conf)
	job := ""
	for _, s := range page {
		begun := time.Now()
		for _, c := range s.commands {
			if out, err := w.run(c); err != nil {
				t.Fatalf("%s: %s# %s: %v\n%s", s.name, c.host, c.text, err, out)
			}
		}
		if len(s.commands) == 0 {
			continue
		}
		t.Logf("%s: %d commands, %.1f s", s.name, len(s.commands), time.Since(begun).Seconds())
		if job == "" {
			out, err := w.run(pageCommand{"ctl1", "gsubmit --parsable --wrap true"})
			if err != nil {
				t.Fatal(err, out)
			}
			job = strings.TrimSpace(out)
		}
		out, err := w.run(pageCommand{"ctl1", "gqueue -h -o %i"})
		if err != nil || !slices.Contains(strings.Fields(out), job) {
			t.Fatalf("after %s, job %s is not in the queue: %q, %v", s.name, job, out, err)
		}
	}
}
