package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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

// opens are the files that open names by themselves, and why they may. A file that is not here may not.
var opens = map[string]string{
	"ctld/token/jwks.go": site, "ctld/tokens.go": ownState, "ctld/rest/server.go": site,
	"ctld/fromconf.go": site, "ctld/restore/restore.go": site, "ctld/clock/file.go": ownState,
	"ctld/deadletter/box.go": ownState, "ctld/power/program.go": fresh, "ctld/power/keeper.go": fresh,
	"dbd/admin.go": ownState, "dbd/backup/backup.go": site, "dbd/db.go": ownState, "dbd/follow.go": ownState,
	"dbd/history/store.go": ownState, "noded/exporter/mapping.go": site,
	"dbd/offline.go": ownState, "dbd/start.go": site,
	"internal/conf/gres.go": site, "internal/conf/load.go": site, "internal/conf/source.go": site,
	"internal/conf/locate/locate.go": site,
	"internal/rpc/dial.go":           ownState, "internal/rpc/pki/issue.go": ownState,
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
	"noded/userfile.go": asUser,
}

// opening are the calls that follow, make or remove a name.
var opening = map[string][]string{
	"os": {"Open", "OpenFile", "OpenRoot", "Create", "CreateTemp", "Mkdir", "MkdirAll", "MkdirTemp", "Remove",
		"RemoveAll", "Rename", "ReadFile", "WriteFile", "ReadDir", "Chmod", "Chown", "Lchown", "Truncate",
		"Symlink", "Link", "Stat"},
	"unix": {"Open", "Openat", "Openat2", "Creat", "Mkdir", "Mkdirat", "Unlink", "Unlinkat", "Rmdir", "Rename",
		"Renameat", "Renameat2", "Symlinkat", "Mkfifoat", "Mknodat", "Chmod", "Fchmodat", "Chown", "Fchownat",
		"Lchown", "Mknod", "Mkfifo", "Symlink", "Link", "Linkat", "Truncate", "Stat"},
	"ioutil": {"ReadFile", "WriteFile", "TempFile", "TempDir"},
}

// TestOpens: in daemons that run as root, each file that opens names by itself says why no user can prepare them.
func TestOpens(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
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
			call, err := opensByItself(path)
			if call != "" {
				seen[rel] = call
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for file, call := range seen {
		if opens[file] == "" {
			t.Errorf("%s calls %s: open it through internal/rootfile, or say in opens why no user can prepare that name",
				file, call)
		}
	}
	for file := range opens {
		if seen[file] == "" {
			t.Errorf("%s opens nothing by itself: remove it from opens", file)
		}
	}
}

// opensByItself gives a call of a file that follows, makes or removes a name; "" without any.
func opensByItself(path string) (call string, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return "", err
	}
	ast.Inspect(f, func(n ast.Node) bool {
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
			call = pkg.Name + "." + sel.Sel.Name
		}
		return true
	})
	return call, nil
}
