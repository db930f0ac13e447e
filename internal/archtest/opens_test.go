package archtest

import (
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/golden"
)

// opensIn are the packages that run as root in daemons.
var opensIn = []string{"ctld", "noded", "dbd", "internal/store", "internal/rpc", "internal/conf", "internal/become",
	"internal/certs", "internal/logfile", "internal/terminal", "internal/client", "internal/userdb", "internal/blob",
	"internal/stepio", "internal/pmix", "internal/pmi", "internal/trail", "internal/acctmgr", "internal/snapfile",
	"internal/boltcheck", "internal/quietlog", "internal/wall", "internal/guest", "internal/budget", "internal/crash",
	"internal/filelock"}

// Why a file may open, make or remove names by itself. What fits none of these goes through internal/rootfile.
const (
	ownState = "in a directory of the daemon's own, which nobody else can write to"
	kernels  = "in /proc, /sys, /dev or a control group, where users make nothing"
	site     = "a path of the configuration or of an administrator's command line"
	asUser   = "by a process or thread that has the user's rights to files"
	exclusiv = "in a directory of root's below one that users may reach: exclusive, without following links"
	inImage  = "below the root of an image, which no link leaves; by nobody, or where nothing else is mounted"
	fresh    = "a new file with a name that nobody can guess, where only its owner may replace it: exclusive"
)

// opens are the files that open names by themselves, and why they may: the reason holds for each of the file's calls in
// testdata/opens.txt. A file that is not here may not.
var opens = map[string]string{
	"ctld/token/jwks.go": site, "ctld/tokens.go": ownState, "ctld/rest/server.go": site,
	"ctld/fromconf.go": site, "ctld/restore/restore.go": site, "ctld/clock/file.go": ownState,
	"ctld/deadletter/box.go": ownState, "ctld/issue/record.go": ownState,
	"ctld/power/program.go": fresh, "ctld/power/keeper.go": fresh,
	"dbd/admin.go": ownState, "dbd/backup/backup.go": site, "dbd/db.go": ownState, "dbd/follow.go": ownState,
	"dbd/history/store.go": ownState, "noded/exporter/mapping.go": site,
	"dbd/offline.go": ownState, "dbd/start.go": site,
	"internal/conf/gres.go": site, "internal/conf/load.go": site, "internal/conf/source.go": site,
	"internal/conf/locate/locate.go": site, "internal/conf/thishost/thishost.go": site,
	"internal/rpc/dial.go": ownState, "internal/rpc/pki/issue.go": ownState,
	"internal/rpc/pki/load.go": ownState, "internal/rpc/pki/credentials.go": ownState,
	"internal/rpc/pki/sign.go":      ownState,
	"internal/rpc/server/listen.go": exclusiv,
	"internal/certs/refuse.go":      ownState, "internal/certs/renew.go": ownState, "internal/logfile/logfile.go": site,
	"internal/client/left.go": site, "internal/client/client.go": site, "internal/terminal/terminal.go": kernels,
	"internal/become/become.go": ownState, "internal/wall/wall.go": site,
	"internal/store/adopt.go": ownState, "internal/store/disk.go": ownState,
	"internal/store/aside.go":     ownState,
	"internal/store/diskcheck.go": ownState,
	"internal/store/join.go":      ownState, "internal/store/logfile.go": ownState,
	"internal/store/options.go": ownState,
	"internal/store/plant.go":   ownState, "internal/store/snapcheck.go": ownState,
	"noded/cgroup/adopt.go":   kernels,
	"noded/cgroup/cpusets.go": kernels, "noded/cgroup/detect.go": kernels, "noded/cgroup/devices.go": kernels,
	"noded/cgroup/group.go": kernels, "noded/cgroup/kill.go": kernels, "noded/cgroup/meter.go": kernels,
	"noded/cgroup/programs.go": kernels, "noded/cgroup/root.go": kernels, "noded/cgroup/sub.go": kernels,
	"noded/cgroup/try.go": kernels, "noded/cgroup/usage.go": kernels,
	"noded/container/container.go": exclusiv, "noded/container/namespace.go": exclusiv,
	"noded/container/remove.go": exclusiv,
	"noded/box/box.go":          exclusiv, "noded/box/driver.go": site, "noded/box/fill.go": asUser,
	"noded/box/ids.go": kernels, "noded/box/points.go": inImage, "noded/box/programs.go": asUser,
	"noded/layers/layers.go": inImage,
	"noded/oci/dirs.go":      exclusiv, "noded/oci/run.go": asUser, "noded/oci/spec.go": asUser,
	"noded/image/cache.go": exclusiv, "noded/image/login.go": asUser, "noded/image/unpack.go": inImage,
	"noded/fence/keeper.go": ownState, "noded/fence/main.go": ownState,
	"noded/gpu/fake.go": site, "noded/gpu/helper.go": kernels, "noded/gpu/kernel.go": kernels,
	"noded/gpu/standin.go":     site,
	"noded/gpuwatch/health.go": kernels, "noded/hardware/allowed.go": site, "noded/hardware/devices.go": kernels,
	"noded/hardware/machine.go": kernels, "noded/hardware/units.go": kernels,
	"noded/health.go": ownState, "noded/loginenv/main.go": asUser, "noded/noded.go": ownState,
	"noded/oom.go": kernels, "noded/options.go": site, "noded/ownmounts.go": site,
	"ctld/program/keeper.go": kernels, "noded/procs/reader.go": kernels,
	"noded/procs/tree.go": kernels, "noded/program.go": ownState, "noded/relay/controllers.go": ownState,
	"noded/receive/receive.go": asUser, "noded/relay/names.go": site, "noded/taskaround/around.go": kernels,
	"noded/scripts/scripts.go":     exclusiv,
	"noded/stepx11/x11.go":         ownState,
	"noded/allocfile/allocfile.go": ownState, "noded/greshelper/store.go": ownState,
	"noded/shim/journal.go": ownState, "noded/shim/launch.go": kernels,
	"noded/shim/lease.go": ownState, "noded/shim/limits.go": kernels, "noded/shim/log.go": ownState,
	"noded/shim/main.go": ownState, "noded/shim/procfs.go": kernels, "noded/shim/server.go": ownState,
	"noded/shim/signal.go": kernels, "noded/shim/socket.go": ownState, "noded/shim/start.go": ownState,
	"noded/spool.go": ownState, "noded/steppmix/main.go": asUser,
	"noded/stepstop.go": kernels, "noded/unkillable.go": kernels,
	"noded/userfile.go": asUser, "noded/prolog.go": site, "noded/shim/abandoned.go": ownState,
	"noded/shim/upgrade.go": site, "ctld/slurmctldprog.go": site,
}

// opening are the calls that follow, make or remove a name.
var opening = map[string][]string{
	"os": {"Open", "OpenFile", "OpenRoot", "Create", "CreateTemp", "Mkdir", "MkdirAll", "MkdirTemp", "Remove",
		"RemoveAll", "Rename", "ReadFile", "WriteFile", "ReadDir", "Chmod", "Chown", "Lchown", "Truncate",
		"Symlink", "Link", "Stat", "Lstat", "Chtimes", "DirFS"},
	"unix": {"Open", "Openat", "Openat2", "Creat", "Mkdir", "Mkdirat", "Unlink", "Unlinkat", "Rmdir", "Rename",
		"Renameat", "Renameat2", "Symlinkat", "Mkfifoat", "Mknodat", "Chmod", "Fchmodat", "Chown", "Fchownat",
		"Lchown", "Mknod", "Mkfifo", "Symlink", "Link", "Linkat", "Truncate", "Stat", "Lstat", "Fstatat", "Access",
		"Faccessat", "Faccessat2", "OpenTree", "MoveMount", "Mount", "Unmount"},
	"filepath": {"Glob", "Walk", "WalkDir", "EvalSymlinks"},
	"ioutil":   {"ReadFile", "WriteFile", "TempFile", "TempDir"},
}

// everybodys are directories in which users prepare names: no daemon opens one of them by a name that is written down.
var everybodys = regexp.MustCompile("^[\"`](/tmp|/var/tmp|/dev/shm)\\b")

// TestOpens: in daemons that run as root, each file that opens names by itself says in opens why no user can prepare
// them. testdata/opens.txt has every such call by file and function, with what it opens: a new one fails until somebody
// has looked at it (-rewrite, and the reason in opens must hold for it).
func TestOpens(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	seen := map[string]string{}
	for _, top := range opensIn {
		err := filepath.WalkDir(filepath.Join(root, top), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			calls, err := opensByItself(path)
			for _, c := range calls {
				all, seen[rel] = append(all, rel+" "+c.String()), c.String()
				if everybodys.MatchString(c.what) {
					t.Errorf("%s: %s: users can prepare that name", rel, c)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for file, call := range seen {
		if opens[file] == "" {
			t.Errorf("%s, %s: open it through internal/rootfile, or say in opens why no user can prepare that name", file, call)
		}
	}
	for file := range opens {
		if seen[file] == "" {
			t.Errorf("%s opens nothing by itself: remove it from opens", file)
		}
	}
	slices.Sort(all)
	golden.Compare(t, "testdata/opens.txt", []byte(strings.Join(slices.Compact(all), "\n")+"\n"))
}

// openCall is a call that follows, makes or removes a name.
type openCall struct{ in, call, what string }

func (c openCall) String() string { return c.in + " " + c.call + "(" + c.what + ")" }

// opensByItself gives such calls of a file. A function that is handed on as a value opens what it is given: "...".
func opensByItself(path string) (calls []openCall, err error) {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, path, nil, 0)
	if err != nil {
		return nil, err
	}
	for _, d := range f.Decls {
		in := "-"
		if fn, is := d.(*ast.FuncDecl); is {
			in = fn.Name.Name
		}
		called := map[ast.Expr]string{}
		ast.Inspect(d, func(n ast.Node) bool {
			if call, is := n.(*ast.CallExpr); is {
				var args []string
				for _, a := range call.Args[:min(len(call.Args), 2)] {
					var b strings.Builder
					if _, is := a.(*ast.FuncLit); is {
						continue
					}
					if printer.Fprint(&b, set, a) == nil {
						args = append(args, strings.Join(strings.Fields(b.String()), " "))
					}
				}
				called[call.Fun] = strings.Join(args, ", ")
			}
			sel, is := n.(*ast.SelectorExpr)
			if !is {
				return true
			}
			pkg, is := sel.X.(*ast.Ident)
			if !is || pkg.Obj != nil { // a variable of that name
				return true
			}
			from := pkg.Name
			if from == "syscall" {
				from = "unix"
			}
			if slices.Contains(opening[from], sel.Sel.Name) {
				what, is := called[sel]
				if !is {
					what = "..."
				}
				calls = append(calls, openCall{in, pkg.Name + "." + sel.Sel.Name, what})
			}
			return true
		})
	}
	return calls, nil
}

// TestOpensAreFound: a call that users could prepare for is found in a file that has others.
func TestOpensAreFound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.go")
	text := "package x\n\nfunc (n *node) look() {\n\tos.Stat(n.dir)\n\tos.WriteFile(\"/tmp/.gbatch-x\", nil, 0o600)\n" +
		"\tfilepath.Glob(a)\n\tdo(unix.Access)\n}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	calls, err := opensByItself(path)
	want := []openCall{{"look", "os.Stat", "n.dir"}, {"look", "os.WriteFile", `"/tmp/.gbatch-x", nil`},
		{"look", "filepath.Glob", "a"}, {"look", "unix.Access", "..."}}
	if err != nil || !slices.Equal(calls, want) || !everybodys.MatchString(calls[1].what) {
		t.Errorf("%v, %v", calls, err)
	}
}
