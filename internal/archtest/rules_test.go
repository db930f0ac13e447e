package archtest

// The rules. To add a package: put it into leaves or layers, at the lowest place that fits, and nowhere else.

// leaves import nothing of this module but each other. Everybody may import them.
var leaves = []string{
	"internal/archtest",
	"internal/become",
	"internal/boltcheck",
	"internal/budget",
	"internal/crash",
	"internal/cron",
	"internal/filelock",
	"internal/format",
	"internal/golden",
	"internal/guest",
	"internal/hostlist",
	"internal/logfile",
	"internal/outpath",
	"internal/plain",
	"internal/price",
	"internal/quietlog",
	"internal/rootfile",
	"internal/snapfile",
	"internal/suggest",
	"internal/terminal",
	"internal/trail",
	"internal/userdb",
	"internal/version",
	"scripts/bench",
	"scripts/webload",
	"scripts/compare",
	"scripts/supply",
	"internal/wall",
	"internal/walltime",
	"internal/wire",
}

// What every room of commands may import.
const (
	words    = "internal/model internal/ask internal/proto internal/slurmjson internal/jobtext internal/clustertext"
	commands = words + " internal/rpc internal/client internal/cli/env internal/cli/getopt"
)

// layers say what each subtree may import besides itself and the leaves. A longer path wins over a shorter one.
var layers = []layer{
	// Nouns -> facts -> decisions.
	{"internal/model", ""},
	{"internal/blob", "internal/model"},
	{"internal/ask", "internal/model"},
	{"internal/state", "internal/model internal/blob"},
	{"internal/sched", "internal/model internal/ask internal/blob internal/state"},
	{"internal/sched/policy", "internal/model internal/ask internal/state"},
	{"internal/sched/demand", "internal/model internal/blob internal/state"},
	{"internal/sched/headroom", "internal/model internal/state"},
	{"internal/sched/lineup", "internal/model internal/ask internal/state"},
	{"internal/sim", "internal/model internal/ask internal/blob internal/state internal/sched internal/conf"},
	{"internal/store", "internal/model internal/blob internal/state internal/sched"},

	// Configuration, and the way over the wire.
	{"internal/conf", "internal/model"},
	{"internal/conf/topoyaml", ""},
	{"internal/conf/thishost", "internal/conf internal/model internal/rpc"},
	{"internal/proto", "internal/model internal/blob"},
	{"internal/trust", "internal/model internal/proto"},
	{"internal/stepio", ""},
	{"internal/pmi", "internal/stepio"},
	{"internal/x11", "internal/stepio"},
	{"internal/pmix", "internal/model internal/stepio"},
	{"internal/rpc", "internal/model internal/blob internal/proto"},
	{"internal/client", "internal/model internal/blob internal/proto internal/rpc"},
	{"internal/certs", "internal/model internal/proto internal/rpc"},
	{"internal/seff", "internal/model"},
	{"internal/migrate", "internal/model internal/conf internal/proto"},
	{"internal/jobenv", "internal/model internal/ask internal/proto"},
	{"internal/slurmjson", "internal/model"},
	{"internal/acctmgr", "internal/model internal/ask internal/proto internal/slurmjson"},
	{"internal/clustertext", "internal/model internal/proto internal/slurmjson"},
	{"internal/jobtext", "internal/model internal/ask internal/proto internal/seff internal/slurmjson"},

	// The commands: a room for each group, none of which imports another, and below them what they share.
	{"internal/cli/getopt", ""},
	{"internal/cli/script", ""},
	{"internal/cli/prompt", "internal/cli/env internal/cli/script"},
	{"internal/cli/env", "internal/cli/getopt " + words + " internal/conf internal/rpc internal/client"},
	{"internal/cli/request", commands},
	{"internal/cli/allocate", commands + " internal/jobenv internal/cli/request"},
	{"internal/cli/submit", commands + " internal/cli/request internal/cli/allocate internal/cli/script"},
	{"internal/cli/run", commands + " internal/cli/request internal/cli/allocate internal/conf internal/stepio " +
		"internal/pmi internal/pmix internal/x11"},
	{"internal/cli/queue", commands},
	{"internal/cli/info", commands},
	{"internal/cli/control", commands + " internal/jobenv internal/cli/prompt"},
	{"internal/cli/acct", commands + " internal/seff"},
	{"internal/cli/report", commands + " internal/cli/prompt"},
	{"internal/cli/manage", commands + " internal/acctmgr internal/cli/prompt"},
	{"internal/cli/complete", commands},
	{"internal/cli/clitest", commands},
	{"internal/cli", "internal/model internal/proto internal/rpc internal/slurmjson internal/cli/env " +
		"internal/cli/submit internal/cli/run internal/cli/queue internal/cli/info internal/cli/control internal/cli/acct " +
		"internal/cli/manage internal/cli/report internal/cli/complete internal/cli/getopt"},

	// The daemons: effects. They never import each other.
	{"ctld/define", "internal/model internal/state internal/conf internal/proto"},
	{"ctld/resv", "internal/model internal/ask internal/state internal/proto"},
	{"ctld/power", "ctld/program internal/hostlist internal/model internal/state"},
	{"ctld/crontab", "internal/model internal/state internal/proto"},
	{"ctld/program", ""},
	{"ctld/trigger", "ctld/clock ctld/program internal/model internal/state"},
	{"ctld/clock", "internal/model"},
	{"ctld/lease", ""},
	{"ctld/arrivals", ""},
	{"ctld/present", "internal/model internal/state"},
	{"ctld/issue", "internal/certs internal/hostlist internal/model internal/proto internal/rpc internal/state"},
	{"ctld/restore", "ctld/issue internal/model internal/state internal/store internal/proto internal/rpc"},
	{"ctld/deadletter", ""},
	{"ctld/events", "internal/model internal/state internal/jobtext internal/rpc/share"},
	{"ctld/token", "internal/model"},
	{"ctld/samples", "internal/model internal/proto internal/state"},
	{"ctld/metrics", "ctld/pools internal/model internal/proto internal/state internal/jobtext"},
	// HTTP is one more way in: it reads options and writes objects by the commands' own tables.
	{"ctld/rest", words + " internal/acctmgr internal/conf internal/rpc internal/state " +
		"internal/cli/env internal/cli/getopt internal/cli/request"},
	// The page asks as the commands do, and is told by package rest who is at the other end of a socket.
	{"ctld/page", words + " ctld/rest internal/conf internal/rpc internal/state internal/seff " +
		"internal/cli/env internal/cli/request internal/cli/script"},
	// A small interface over HTTP, which asks as the commands do.
	{"ctld/facade", words + " ctld/rest ctld/pools internal/hostlist internal/rpc internal/state " +
		"internal/cli/env internal/cli/getopt internal/cli/request"},
	{"ctld/heap", ""},
	{"ctld/hook", "ctld/program internal/model internal/ask"},
	{"ctld/pools", "internal/model internal/proto internal/state internal/sched/headroom"},
	{"ctld/alike", "internal/model internal/proto internal/state"},
	{"ctld/inuse", "internal/model internal/proto internal/state internal/sched/multifactor"},
	{"ctld/alarm", "internal/model internal/state internal/hostlist"},
	{"ctld/nearlimit", "internal/model internal/state"},
	{"ctld/external", "internal/model internal/state"},
	{"ctld/jobevents", "internal/model internal/state internal/jobtext"},
	{"ctld/peaks", "internal/model internal/state"},
	{"ctld", "ctld/resv ctld/power ctld/crontab ctld/trigger ctld/program ctld/define ctld/heap ctld/clock ctld/restore " +
		"ctld/deadletter ctld/token ctld/rest ctld/metrics ctld/samples ctld/events ctld/page ctld/facade ctld/hook " +
		"ctld/external ctld/pools ctld/peaks ctld/nearlimit ctld/jobevents ctld/alike ctld/inuse ctld/lease ctld/issue " +
		"ctld/present ctld/arrivals " +
		"internal/model internal/ask internal/seff internal/blob internal/jobenv " +
		"internal/state internal/sched internal/store internal/conf internal/proto internal/trust internal/rpc " +
		"internal/certs internal/client"},
	{"noded/steplayout", "internal/model internal/ask internal/proto"},
	{"noded/hardware", "noded/gpu noded/cgroup internal/model internal/jobenv internal/conf internal/proto"},
	{"noded/gpuwatch", "noded/gpu noded/hardware internal/model internal/jobenv internal/proto"},
	{"noded/scripts", "internal/model internal/blob"},
	{"noded/allocfile", "internal/model internal/proto"},
	{"noded/greshelper", "noded/shim"},
	{"noded/exporter", "internal/rpc"},
	{"noded/pool", ""},
	{"noded/container", ""},
	{"noded/asuser", ""},
	{"noded/gpuoom", ""},
	{"noded/image", "noded/asuser noded/container"},
	{"noded/layers", ""},
	{"noded/boxenv", ""},
	{"noded/box", "internal/model noded/asuser noded/boxenv noded/container noded/image"},
	{"noded/oci", "internal/model noded/boxenv"},
	{"noded/loginenv", ""},
	{"noded/receive", ""},
	{"noded/starter", ""},
	{"noded/ports", "internal/model"},
	{"noded/check", "internal/model internal/proto internal/stepio noded/steplayout"},
	{"noded/shares", ""},
	{"noded/sitegroup", "noded/cgroup"},
	{"noded/procs", ""},
	{"noded/relay", "internal/model internal/jobenv internal/proto internal/trust internal/rpc internal/certs"},
	{"noded/fence", "internal/model internal/proto internal/rpc noded/shim"},
	{"noded/steppmi", "noded/steprelay internal/pmi internal/stepio"},
	{"noded/steppmix", "noded/steprelay noded/taskenv internal/pmix internal/stepio"},
	{"noded/stepx11", "noded/steprelay internal/proto internal/stepio internal/x11"},
	{"noded/taskenv", ""},
	{"noded/taskaround", ""},
	{"noded", "internal/model internal/jobenv internal/blob internal/conf internal/proto internal/trust internal/rpc " +
		"internal/client " +
		"internal/certs internal/stepio internal/pmi"},
	{"dbd/usage", "internal/model"},
	{"dbd/jobstats", "internal/model"},
	{"dbd/history", "internal/model internal/proto"},
	{"dbd", "internal/model internal/blob internal/conf internal/proto internal/trust internal/rpc internal/certs " +
		"internal/client"},

	// On top. What runs the daemons as programs knows none of them; the launcher, and what is in the nodes' control
	// groups, it ends itself.
	{"internal/up", "internal/model internal/conf internal/proto internal/rpc internal/client noded/shim noded/cgroup"},
	{"internal/devcluster", "ctld noded dbd internal"},
	// a cluster in one goroutine: of the daemons only what decides, the time and the fence
	{"internal/faultsim", "ctld/clock noded/fence internal/model internal/state internal/sched internal/proto"},
	{"scripts/attack", "internal/model internal/proto internal/rpc"},
	{"cmd", "ctld noded dbd internal"},
}

// testsMayImport is what _test.go files may import besides what their package may.
var testsMayImport = []string{"internal/devcluster", "noded/relay", "internal/golden", "internal/wire/wiretest",
	"internal/cli/clitest"}

// testOnly packages are imported by _test.go files only.
var testOnly = []string{"internal/golden", "internal/wire/wiretest", "internal/cli/clitest"}

// onlyIn keeps a dependency in its place. Keys match the path and everything below it.
var onlyIn = []confined{
	{"github.com/spf13/cobra", "internal/cli cmd", "a command's options belong to the command"},
	{"github.com/hashicorp", "internal/store", "raft stays behind store.Open and Propose"},
	{"github.com/NVIDIA/go-nvml", "noded/gpu", "NVML needs cgo and a driver"},
	{"go.yaml.in/yaml", "ctld/rest internal/migrate internal/up internal/conf/topoyaml",
		"requests, and files that are YAML"},
	{"github.com/golang-jwt", "ctld/token", "one place says which tokens count"},
	{"github.com/chromedp", "internal/devcluster", "one test looks at pages in a browser"},
	{"github.com/prometheus", "ctld/metrics", "one place has the names of metrics"},
	{"C", "noded", "everything but gnoded builds with CGO_ENABLED=0"},
	{"github.com/containerd/cgroups", "noded/cgroup", "one place knows cgroup v1 from v2"},
	{"github.com/google/go-containerregistry", "noded/image internal/devcluster", "one place talks to registries"},
	{"github.com/anishathalye/porcupine", "internal/up", "one history of users is checked, by a test"},
	{"go.etcd.io/bbolt", "dbd internal/store", "one file format, two owners"},
	{"github.com/tidwall/btree", "internal/state internal/sched", "ordered sets of facts"},
}

// pure packages can import no clock, socket, file, lock, log or dice, so that the scheduler that runs in production is
// the one that the simulator runs and the tests replay. Only their _test.go files may.
var (
	pure  = []string{"internal/model", "internal/ask", "internal/state", "internal/sched"}
	texts = []string{ // the same, but for times as values
		"internal/jobtext", "internal/clustertext", "internal/cron",
		"internal/acctmgr", "internal/jobenv", "internal/slurmjson", "internal/format", "ctld/resv", "ctld/define",
		"noded/steplayout",
	}
	effects = []string{"time", "os", "net", "sync", "log", "math/rand", "crypto/rand", "io/fs", "io/ioutil",
		"path/filepath", "syscall", "golang.org/x/sys"}
)

// light binaries start in a few milliseconds (gcli) or stay small beside the jobs (gshim): nothing that they import
// inside this module, however indirectly, may import one of heavy.
var (
	light = []string{"cmd/gcli", "cmd/gshim"}
	quick = []string{"net", "regexp"} // take a command's start 95 microseconds and more: none of cmd/gcli
	heavy = []string{
		"C", "crypto/tls", "net/http", "expvar", "github.com/hashicorp", "github.com/armon/go-metrics",
		"github.com/prometheus",
		"go.etcd.io/bbolt", "github.com/NVIDIA/go-nvml", "github.com/containerd/cgroups", "github.com/spf13/cobra",
	}
)

// top is all that may lie at the top of the repository.
var top = []string{
	"cmd", "ctld", "noded", "dbd", "internal", "etc", "man", "scripts",
	"go.mod", "go.sum", "Makefile", "README.md", "LICENSE", "CONTRIBUTING.md",
	".ci", ".git", ".gitignore",
	"bin", "dist", // built, ignored by git
}

// exitIn may end the process; everybody else returns an error.
var exitIn = []string{"cmd", "scripts/attack", "scripts/bench", "scripts/compare", "scripts/supply",
	"scripts/webload"}

// exits are the calls that end it.
var exits = map[string][]string{
	"os":      {"Exit"},
	"syscall": {"Exit"},
	"log":     {"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"},
}

// A file of more than longLines lines is worth a look, one of more than tooLongLines has two subjects. Generated files
// don't count.
const (
	longLines    = 500
	tooLongLines = 900
)
