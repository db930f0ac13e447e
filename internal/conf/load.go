package conf

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gbatch/internal/conf/topoyaml"
)

// The names of the files of a configuration. The main file is the first of the two that exists.
const (
	MainFile     = "gbatch.conf"
	SlurmFile    = "slurm.conf"
	GresFile     = "gres.conf"
	CgroupFile   = "cgroup.conf"
	TopologyFile = "topology.conf"
	// TopologiesFile has several topologies, in place of TopologyFile.
	TopologiesFile = "topology.yaml"

	ContainerFile = "job_container.conf"
	OCIFile       = "oci.conf"
)

// Load reads the configuration in a directory: gbatch.conf, or slurm.conf where there is none, with the gres.conf,
// cgroup.conf, topology.yaml or topology.conf, job_container.conf and oci.conf beside it. It returns every problem it
// finds, in the order of files and lines. The Config is nil if and only if one of them is an Error.
func Load(dir string) (*Config, []Problem) {
	src := osSource()
	for _, name := range []string{MainFile, SlurmFile} {
		if file := filepath.Join(dir, name); src.exists(file) {
			return load(src, file)
		}
	}
	return nil, []Problem{{File: dir, Severity: Error, Text: "no " + MainFile + " and no " + SlurmFile +
		" in this directory",
		Hint: "write one, or name the directory that has it"}}
}

// LoadFile is Load for a main file of any name; the other files are in the same directory. For a directory it is the
// same as Load.
func LoadFile(name string) (*Config, []Problem) {
	if fi, err := os.Stat(name); err == nil && fi.IsDir() {
		return Load(name)
	}
	return load(osSource(), name)
}

// LoadFS is LoadFile within a file system. Include can't leave it.
func LoadFS(fsys fs.FS, name string) (*Config, []Problem) {
	return load(fsSource(fsys), path.Clean(name))
}

// loader is a configuration while it is read.
type loader struct {
	src         source
	cfg         *Config
	probs       *problems
	settings    *table
	schedParams []schedParam
	nodeKeys    []lineKey[nodeLine]
	partKeys    []lineKey[PartitionDef]
	seen        map[string]pos // keys of the main file
	old         map[string]pair

	controllers  []controllerLine
	nodeDefaults []pair
	exclusives   []namedPart    // with OverSubscribe=NO on their lines
	nodeIndex    map[string]int // into cfg.Nodes
	partDefaults []pair
	partIndex    map[string]pos
	partLines    []partLine // as cfg.Partitions
	downLines    [][]pair
	setLines     [][]pair
	priceLines   []priceLine
	switchLines  [][]pair

	yamlTopologies []topoyaml.Topology // nil: there is no topology.yaml
	yamlFile       string
}

func load(src source, main string) (*Config, []Problem) {
	l, _, _ := loadAll(src, main)
	list := l.probs.sorted()
	if HasErrors(list) {
		return nil, list
	}
	return l.cfg, list
}

// loadAll reads a configuration, and gives its statements and Include lines beside it.
func loadAll(src source, main string) (l *loader, all []statement, includes []Surveyed) {
	l = &loader{
		src: src, cfg: defaults(), probs: &problems{}, settings: mainSettings(), schedParams: schedParams(),
		nodeKeys: nodeKeys(), partKeys: partitionKeys(),
		seen: map[string]pos{}, old: map[string]pair{}, nodeIndex: map[string]int{}, partIndex: map[string]pos{},
	}
	l.cfg.Path = main
	dir := src.dir(main)
	l.cfg.PKIDir = src.abs(src.join(dir, "pki"))

	hash := sha256.New()
	r := &reader{src: src, probs: l.probs, hash: hash}
	r.readFile(main, pos{}, nil)
	unreadable := len(r.out) == 0 && len(l.probs.list) > 0
	mainLines := r.out
	l.checkUnset(r.unset)
	beside := func(name string) []statement {
		r.out = nil
		if file := src.join(dir, name); src.exists(file) {
			r.readFile(file, pos{}, nil)
		}
		return r.out
	}
	gres := beside(GresFile)
	cgroupRead := len(r.files)
	cgroup := beside(CgroupFile)
	hasCgroup := len(r.files) > cgroupRead
	var topology []statement
	if !l.readYAML(r, dir) {
		topology = beside(TopologyFile)
	}
	containers, oci := beside(ContainerFile), beside(OCIFile)
	l.remarkUnread(src, dir)
	l.cfg.Files, l.cfg.Hash = r.files, hex.EncodeToString(hash.Sum(nil))

	if !unreadable { // else what is missing isn't worth a word
		l.readMain(mainLines)
		l.readGres(gres)
		if hasCgroup {
			l.readCgroup(cgroup)
		}
		l.readTopology(topology)
		l.readContainers(containers)
		l.readOCI(oci)
		l.resolve()
	}
	return l, slices.Concat(mainLines, gres, cgroup, topology, containers, oci), r.included
}

// readYAML reads topology.yaml, and reports whether there is one: then topology.conf plays no part, as in Slurm.
func (l *loader) readYAML(r *reader, dir string) bool {
	file := l.src.join(dir, TopologiesFile)
	if !l.src.exists(file) {
		return false
	}
	if other := l.src.join(dir, TopologyFile); l.src.exists(other) {
		l.probs.notef(pos{file: other}, "remove one of the two", "it is ignored: there is a %s, which counts", TopologiesFile)
	}
	l.yamlTopologies, l.yamlFile = []topoyaml.Topology{}, file
	text, ok := r.take(file, pos{})
	if !ok {
		return true
	}
	list, faults := topoyaml.Parse(text)
	for _, f := range faults {
		l.probs.errorf(pos{file, f.Line}, f.Hint, "%s", f.Text)
	}
	if len(faults) == 0 {
		l.yamlTopologies = list
	}
	return true
}

// readMain reads the statements of the main file.
func (l *loader) readMain(lines []statement) {
	for _, s := range lines {
		pairs := s.pairs
		for len(pairs) > 0 {
			kind := recordKey(pairs[0].key)
			if rest := l.readTerms(pairs); len(rest) < len(pairs) {
				pairs = rest
				continue
			}
			if kind == "" {
				l.readSetting(pairs[0])
				pairs = pairs[1:]
				continue
			}
			switch kind {
			case keyNode:
				l.readNodeLine(pairs)
			case keyPartition:
				l.readPartitionLine(pairs)
			case keyDown:
				l.downLines = append(l.downLines, pairs)
			case keyPrice:
				l.readPriceLine(pairs)
			case keyNodeSet:
				l.setLines = append(l.setLines, pairs)
			case keyFrontend:
				l.probs.warnf(pairs[0].at, "remove the line", "FrontendName is not supported: every node runs its own gnoded")
			case keySwitch, keyBlock:
				l.probs.notef(pairs[0].at, "move the lines there", "%s belongs in %s; it is read as if it were there", kind,
					TopologyFile)
				l.switchLines = append(l.switchLines, pairs)
			}
			break
		}
	}
}

func (l *loader) readSetting(p pair) {
	switch key := strings.ToLower(p.key); key {
	case "slurmctldhost":
		l.readController(p)
	case "schedulerparameters":
		if _, again := l.seen["SchedulerParameters"]; again {
			kind := l.cfg.Scheduler.Type
			l.cfg.Scheduler = defaultScheduler()
			l.cfg.Scheduler.Type = kind
		}
		l.apply(p)
		l.readScheduler(p)
	case "controlmachine", "controladdr", "backupcontroller", "backupaddr":
		l.apply(p)
		l.old[key] = p
	default:
		l.apply(p)
	}
}

// resolve does the work that needs all lines: values that depend on other keys, and checks.
func (l *loader) resolve() {
	for _, pairs := range l.downLines {
		l.readDownLine(pairs)
	}
	l.readSetLines()
	l.resolveControllers()
	l.resolvePartitions()
	l.readSwitches()
	l.checkPlaces()
	l.checkPrices()
	l.check()
}

// where is the place of the first of some keys in the main file, or the file itself.
func (l *loader) where(keys ...string) pos {
	for _, key := range keys {
		if at, ok := l.seen[key]; ok {
			return at
		}
	}
	return pos{file: l.cfg.Path}
}

// Surveyed is one statement of a configuration as it was found, for programs that carry it over.
type Surveyed struct {
	File        string
	Line, Last  int // of the file, counted from 1: the first and the last line
	Pairs       []SurveyedPair
	IncludeName string // of an Include line, which has no pairs: what it names
	IncludeFile string // and the file that was read for it
}

// SurveyedPair is one key=value of a statement.
type SurveyedPair struct {
	Key, Value string
	// Inert is set for a key of the main file that is known and has no meaning here.
	Inert bool
}

// Survey reads a configuration like [LoadFile], and gives every statement of all of its files, in the order of reading,
// and each problem at its own line: repeated remarks are not merged. The Config is nil if one of them is an Error.
func Survey(main string) ([]Surveyed, []Problem, *Config) {
	l, statements, includes := loadAll(osSource(), main)
	out := make([]Surveyed, 0, len(statements)+len(includes))
	for _, s := range statements {
		of := Surveyed{File: s.at.file, Line: s.at.line, Last: max(s.last, s.at.line)}
		ofMain := !slices.Contains([]string{GresFile, CgroupFile, TopologyFile, ContainerFile, OCIFile},
			path.Base(s.at.file)) &&
			recordKey(s.pairs[0].key) == ""
		for _, p := range s.pairs {
			known := l.settings.byName[strings.ToLower(p.key)]
			inert := ofMain && known != nil && known.status > Unused && known.read == nil
			of.Pairs = append(of.Pairs, SurveyedPair{p.key, p.value, inert})
		}
		out = append(out, of)
	}
	out = append(out, includes...)
	slices.SortStableFunc(out, func(a, b Surveyed) int {
		if a.File != b.File {
			return l.probs.order(a.File) - l.probs.order(b.File)
		}
		return a.Line - b.Line
	})
	if HasErrors(l.probs.list) {
		l.cfg = nil
	}
	return out, l.probs.list, l.cfg
}
