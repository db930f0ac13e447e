package up

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gbatch/internal/conf"
	"gbatch/internal/model"
)

// The programs that a cluster is made of: the role of a Member.
const (
	RoleController = "gctld"
	RoleNode       = "gnoded"
	RoleAccounting = "gdbd"
)

// book is up.json: what DIR was made from and which processes are ours.
type book struct {
	Version int      `json:"version"`
	Cluster string   `json:"cluster"`
	Made    recipe   `json:"made"`
	Boot    string   `json:"boot_id"` // pids and start times are of this boot
	Members []Member `json:"members"`
}

const bookVersion = 1

// recipe is all that the files of a new DIR are made from.
type recipe struct {
	Nodes       int    `json:"nodes"`
	Cloud       int    `json:"cloud,omitempty"` // further ones, which exist while they are powered up
	CPUs        int    `json:"cpus,omitempty"`
	MemMiB      int64  `json:"mem_mib,omitempty"`
	GPUs        string `json:"gpus,omitempty"`
	Controllers int    `json:"controllers"`
	Conf        string `json:"conf,omitempty"`
	Powers      bool   `json:"powers,omitempty"`    // the file's nodes are powered down and up: by Power here
	NodeLine    string `json:"node_line,omitempty"` // this machine as a NodeName line, where it is the only node
	CtldPorts   []int  `json:"ctld_ports"`
	DbdPort     int    `json:"dbd_port"`
	HTTPPorts   []int  `json:"http_ports,omitempty"`    // of the controllers; none in a DIR of before
	DbdCopyPort int    `json:"dbd_copy_port,omitempty"` // of a second gdbd; 0: there is none
}

// gdbds is the number of accounting daemons.
func (r *recipe) gdbds() int {
	if r.DbdCopyPort != 0 {
		return 2
	}
	return 1
}

func (r *recipe) virtual() bool { return r.made() || r.Conf != "" }

// made reports whether the nodes are virtual ones that Up makes, not this machine or those of a file.
func (r *recipe) made() bool { return r.Nodes > 0 || r.Cloud > 0 }

// nodes are the names of the virtual nodes that Up makes, those of the cloud last.
func (r *recipe) nodes() []string {
	var out []string
	for i := range r.Nodes {
		out = append(out, "n"+strconv.Itoa(i+1))
	}
	for i := range r.Cloud {
		out = append(out, "c"+strconv.Itoa(i+1))
	}
	return out
}

// Member is one daemon of the cluster.
type Member struct {
	Role string `json:"role"`
	Name string `json:"name"`
	process
	Addresses []string `json:"addresses"`
	HTTP      string   `json:"http,omitempty"` // of a controller: the address of its REST interface
	Directory string   `json:"directory"`
	Log       string   `json:"log"`
	Power     string   `json:"power,omitempty"` // of a node, what Power has made of it: on, off; "": nothing yet
	cloud     bool     // a node that exists only while it is powered up
}

// Off reports whether a node is powered down: Up leaves it so, until ResumeProgram calls Power.
func (m *Member) Off() bool {
	return !m.runs() && (m.Power == powerOff || m.Power == "" && m.cloud)
}

// String names it for people: "ctl1 (gctld)".
func (m *Member) String() string { return m.Name + " (" + m.Role + ")" }

func (m *Member) is(o *Member) bool { return m.Role == o.Role && m.Name == o.Name }

// errNoCluster says that DIR holds no cluster.
var errNoCluster = errors.New("no cluster")

// readBook reads up.json. errors.Is(err, errNoCluster) where there is none and nothing else either.
func (l layout) readBook() (*book, error) {
	data, err := os.ReadFile(l.book())
	if errors.Is(err, fs.ErrNotExist) {
		empty, err := l.empty()
		switch {
		case err != nil:
			return nil, err
		case empty:
			return nil, fmt.Errorf("%w in %s; `gbatch up` makes one", errNoCluster, l)
		}
		return nil, fmt.Errorf("%s holds files but no up.json, so it is not a finished cluster of `gbatch up`: give "+
			"another directory with --dir, or move it out of the way (mv %s %s.old)%s",
			l, l, l, l.strays())
	}
	if err != nil {
		return nil, err
	}
	var b book
	if err := json.Unmarshal(data, &b); err != nil {
		return nil, fmt.Errorf("%s is damaged (%w): move the directory out of the way (mv %s %s.old), or give another one "+
			"with --dir%s", l.book(), err, l, l, l.strays())
	}
	if b.Version != bookVersion {
		return nil, fmt.Errorf("%s is of version %d, and this gbatch knows version %d: use the gbatch that made it", l.book(),
			b.Version, bookVersion)
	}
	return &b, nil
}

func (l layout) writeBook(b *book) error {
	data, err := json.MarshalIndent(b, "", "  ")
	if err != nil {
		return err
	}
	return write(l.book(), append(data, '\n'), 0o644)
}

// strays names daemons that run from DIR although its book is missing, as a sentence to add.
func (l layout) strays() string {
	all, err := commands()
	if err != nil {
		return ""
	}
	var pids []string
	for p, argv := range all {
		if option(argv, "-f") == l.conf() || strings.HasPrefix(option(argv, "-dir"), string(l)+"/") {
			pids = append(pids, fmt.Sprint(p.PID))
		}
	}
	if len(pids) == 0 {
		return ""
	}
	return fmt.Sprintf("; daemons of it still run: end them first (kill %s)", strings.Join(pids, " "))
}

// members lists the daemons that the configuration names, in the order in which they start.
func (l layout) members(cfg *conf.Config) []Member {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost" // only %h in a path asks for it
	}
	var out []Member
	add := func(role, log, name, dir string, addresses ...string) {
		out = append(out, Member{Role: role, Name: name, Addresses: addresses, Directory: dir, Log: l.at("log", log+".log")})
	}
	for _, c := range cfg.Controllers {
		add(RoleController, "ctld-"+c.Name, c.Name, conf.ExpandPath(cfg.StateSaveLocation, c.Name, host), c.Addr,
			filepath.Join(cfg.LocalSocketDir, "ctld-"+c.Name+".sock"))
		out[len(out)-1].HTTP = urlOf(cfg, c.Name, c.Addr)
	}
	if cfg.DbdAddr != "" {
		add(RoleAccounting, dbdName, dbdName, cfg.DbdStateLocation, cfg.DbdAddr)
	}
	if cfg.DbdCopyAddr != "" {
		add(RoleAccounting, dbdCopyName, dbdCopyName, l.at("state", dbdCopyName), cfg.DbdCopyAddr)
	}
	for i := range cfg.Nodes {
		n := cfg.Nodes[i].Name
		if st := cfg.Nodes[i].State; st == model.FutureText || st == model.ExternalText {
			continue // one would come as soon as its daemon runs, the other has none
		}
		add(RoleNode, "node-"+n, n, conf.ExpandPath(cfg.SlurmdSpoolDir, n, host),
			filepath.Join(cfg.LocalSocketDir, "noded-"+n+".sock"))
		out[len(out)-1].cloud = cfg.Power.On() && cfg.Nodes[i].State == model.CloudText
	}
	return out
}

// The names in the certificates of the accounting daemon and its copy.
const (
	dbdName     = "dbd"
	dbdCopyName = "dbd2"
)

// find fills in which of the wanted daemons run: those that the book knows by pid and start time, and those whose
// command line names our configuration, started by an `up` that was cut off before it could write the book.
func (l layout) find(b *book, want []Member) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	var all map[process][]string
	for i := range want {
		w := &want[i]
		w.process = process{}
		for j := range b.Members {
			m := &b.Members[j]
			if !m.is(w) {
				continue
			}
			if w.Power = m.Power; b.Boot == boot && m.runs() {
				w.process = m.process
			}
		}
		if w.PID != 0 {
			continue
		}
		if all == nil {
			if all, err = commands(); err != nil {
				return err
			}
		}
		for p, argv := range all {
			if filepath.Base(argv[0]) == w.Role && option(argv, "-f") == l.conf() && option(argv, "-N") == w.Name {
				w.process = p
			}
		}
	}
	b.Boot = boot
	return nil
}

// urlOf is where a controller serves HTTP; "": nowhere.
func urlOf(cfg *conf.Config, name, addr string) string {
	at := cfg.HTTP.HTTPAddr(name, addr)
	if at == "" {
		return ""
	}
	host, _, err := net.SplitHostPort(at)
	scheme := "http"
	if ip := net.ParseIP(host); cfg.HTTP.TLS == "yes" ||
		cfg.HTTP.TLS == "auto" && host != "localhost" && (err != nil || ip == nil || !ip.IsLoopback()) {
		scheme = "https"
	}
	return scheme + "://" + at + cfg.HTTP.Path
}
