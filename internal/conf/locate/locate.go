// Package locate finds a command's configuration, and the few settings in it that a user command needs, above all the
// directory of the local socket.
//
// It is separate from package conf because commands start often and must start fast: it looks for one key, parses
// nothing else and reports nothing about the rest of the file. conf.Load reads the same key with all others; a test
// compares the two. It imports nothing of this module.
package locate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
)

// The variables that name a configuration, in the order in which they count. A
// value is a file, or a directory that has a gbatch.conf or slurm.conf.
const (
	EnvConf      = "GBATCH_CONF"
	EnvSlurmConf = "SLURM_CONF"
	// EnvHome is where `gbatch up` keeps its cluster.
	EnvHome = "GBATCH_HOME"
)

const (
	// DefaultSocketDir is LocalSocketDir where the configuration doesn't say.
	DefaultSocketDir = "/run/gbatch"
	etcDir           = "/etc/gbatch"
	maxFileBytes     = 16 << 20 // as conf.MaxFileBytes
	maxIncludeDepth  = 10       // as conf.MaxIncludeDepth
	maxFiles         = 256      // as conf.MaxFiles
)

// ErrNoConfig is wrapped by the error of Config if there is no configuration anywhere.
var ErrNoConfig = errors.New("no configuration found")

// Config returns the path of the main file: $GBATCH_CONF, $SLURM_CONF, /etc/gbatch/gbatch.conf, /etc/gbatch/slurm.conf,
// then the one of `gbatch up`. A variable that is set but names no readable file is an error; the search does not go
// on. getenv is os.Getenv, or a stand-in.
func Config(getenv func(string) string) (path string, err error) {
	return find(getenv, etcDir)
}

func find(getenv func(string) string, etc string) (string, error) {
	for _, name := range []string{EnvConf, EnvSlurmConf} {
		v := getenv(name)
		if v == "" {
			continue
		}
		file, ok := mainFile(v)
		if !ok {
			return "", fmt.Errorf("$%s names %s, which can't be read: %w", name, v, why(v))
		}
		return file, nil
	}
	if file, ok := mainFile(etc); ok {
		return file, nil
	}
	up := UpDir(getenv)
	if up != "" {
		if file, ok := mainFile(up); ok {
			return file, nil
		}
	}
	places := etc + "/gbatch.conf"
	if up != "" {
		places += " and " + up + "/gbatch.conf"
	}
	return "", fmt.Errorf("%w: looked at %s; start a cluster with `gbatch up`, or set %s to the configuration of yours",
		ErrNoConfig, places, EnvConf)
}

// UpDir is the directory in which `gbatch up` keeps its cluster by default: $GBATCH_HOME, $XDG_STATE_HOME/gbatch/up or
// ~/.local/state/gbatch/up; "" where none of HOME and the others is set.
func UpDir(getenv func(string) string) string {
	if dir := getenv(EnvHome); dir != "" {
		return dir
	}
	if dir := getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "gbatch", "up")
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "state", "gbatch", "up")
	}
	return ""
}

// mainFile turns a file, or a directory that has one, into the main file.
func mainFile(path string) (string, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return "", false
	}
	if !info.IsDir() {
		return path, true
	}
	for _, name := range []string{"gbatch.conf", "slurm.conf"} {
		if _, err := os.Stat(filepath.Join(path, name)); err == nil {
			return filepath.Join(path, name), true
		}
	}
	return "", false
}

// why explains what is wrong with a path that a variable names.
func why(path string) error {
	_, err := os.Stat(path)
	var pe *fs.PathError
	switch {
	case err == nil:
		return errors.New("it has no gbatch.conf and no slurm.conf")
	case errors.As(err, &pe):
		return pe.Err
	}
	return err
}

// LocalSocketDir returns the directory of the local socket that a main file
// names, or DefaultSocketDir where it names none.
func LocalSocketDir(confPath string) (dir string, err error) {
	s := &scanner{}
	if err := s.scan(confPath, 0); err != nil {
		return "", fmt.Errorf("looking for LocalSocketDir: %w", err)
	}
	return cmp.Or(s.has["localsocketdir"], DefaultSocketDir), nil
}

// DataParser gives DataParserParameters: which version of lists a bare --json means; "" where it isn't said, or can't
// be read.
func DataParser(getenv func(string) string) string {
	path, err := Config(getenv)
	if err != nil {
		return ""
	}
	s := &scanner{}
	if s.scan(path, 0) != nil {
		return "" // who asks the cluster is told
	}
	return s.has["dataparserparameters"]
}

// SocketDir is Config and LocalSocketDir in one.
func SocketDir(getenv func(string) string) (confPath, dir string, err error) {
	if confPath, err = Config(getenv); err != nil {
		return "", "", err
	}
	dir, err = LocalSocketDir(confPath)
	return confPath, dir, err
}

// ForSubmitters is what commands that submit jobs look for, in one reading of the files.
func ForSubmitters(getenv func(string) string) (socketDir, filter string, err error) {
	path, err := Config(getenv)
	if err != nil {
		return "", "", err
	}
	s := &scanner{}
	if err := s.scan(path, 0); err != nil {
		return "", "", fmt.Errorf("looking for LocalSocketDir: %w", err)
	}
	return cmp.Or(s.has["localsocketdir"], DefaultSocketDir), s.has["clifilterprogram"], nil
}

// ForSteps is what commands that ask for steps look for: SrunProlog and SrunEpilog too.
func ForSteps(getenv func(string) string) (socketDir, prolog, epilog string, err error) {
	path, err := Config(getenv)
	if err != nil {
		return "", "", "", err
	}
	s := &scanner{}
	if err := s.scan(path, 0); err != nil {
		return "", "", "", fmt.Errorf("looking for LocalSocketDir: %w", err)
	}
	return cmp.Or(s.has["localsocketdir"], DefaultSocketDir), s.has["srunprolog"], s.has["srunepilog"], nil
}

// wanted are the keys that commands need, in lower case; clusterName is needed for Include.
var wanted = [...]string{clusterName, "localsocketdir", "dataparserparameters", "clifilterprogram", "srunprolog",
	"srunepilog"}

const clusterName = "clustername"

// scanner looks for what commands need: the last of each key in a file and in those it includes.
type scanner struct {
	has   map[string]string // by key, of wanted
	files int
}

// take notes what a line says of the keys. Every command reads all lines, and most have none of them: only words before
// an equals sign are compared.
func (s *scanner) take(line string) {
	if rest, ok := statement(line, "unset"); ok {
		for _, name := range strings.FieldsFunc(rest, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }) {
			if name = strings.ToLower(name); name != clusterName {
				delete(s.has, name)
			}
		}
	}
	for i, from := 0, 0; ; from = i + 1 {
		eq := strings.IndexByte(line[from:], '=')
		if eq < 0 {
			return
		}
		i = from + eq
		word := strings.TrimRight(line[from:i], " \t\f")
		word = word[strings.LastIndexAny(word, " \t\f")+1:]
		for _, key := range wanted {
			if len(word) != len(key) || !strings.EqualFold(word, key) {
				continue
			}
			if v, ok := value(line, key); ok && v != "" {
				if s.has == nil {
					s.has = map[string]string{}
				}
				s.has[key] = v
			}
		}
	}
}

func (s *scanner) scan(path string, depth int) error {
	if depth > maxIncludeDepth {
		return fmt.Errorf("%s: Include nests more than %d deep", path, maxIncludeDepth)
	}
	if s.files++; s.files > maxFiles {
		return fmt.Errorf("%s: more than %d files", path, maxFiles)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return err
	}
	if len(text) > maxFileBytes {
		return fmt.Errorf("%s is larger than %d MiB", path, maxFileBytes>>20)
	}
	rest := strings.TrimPrefix(string(text), "\ufeff")
	joined, quoted := "", false
	for rest != "" {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		line, quoted = uncomment(line, quoted)
		line = strings.TrimRight(line, " \t\r\f")
		if backslashes := len(line) - len(strings.TrimRight(line, `\`)); backslashes%2 == 1 {
			line = line[:len(line)-1]
			if rest != "" {
				joined += line
				continue
			}
		}
		if joined != "" {
			line, joined = joined+line, ""
		}
		quoted = false
		if name, ok := include(line); ok {
			name = strings.ReplaceAll(name, "%c", s.has[clusterName])
			if !filepath.IsAbs(name) {
				name = filepath.Join(filepath.Dir(path), name)
			}
			if err := s.scan(name, depth+1); err != nil {
				return err
			}
			continue
		}
		s.take(line)
	}
	return nil
}

// uncomment cuts a comment off. quoted says that a quote is open where the line
// begins, and where it ends.
func uncomment(line string, quoted bool) (string, bool) {
	for i := 0; i < len(line); i++ {
		skip := strings.IndexAny(line[i:], "\\\"#")
		if skip < 0 {
			break
		}
		i += skip
		switch {
		case line[i] == '\\':
			i++
		case line[i] == '"':
			quoted = !quoted
		case !quoted:
			return line[:i], quoted
		}
	}
	return line, quoted
}

// include returns the file of an Include line.
func include(line string) (string, bool) {
	rest, ok := statement(line, "include")
	name := strings.Trim(rest, `"`)
	return name, ok && name != ""
}

// statement returns what follows the word that a line begins with.
func statement(line, word string) (string, bool) {
	line = strings.TrimLeft(line, " \t\f")
	n := len(word)
	if len(line) <= n || !strings.EqualFold(line[:n], word) || strings.IndexByte(" \t\f", line[n]) < 0 {
		return "", false
	}
	rest := strings.TrimSpace(line[n:])
	return rest, !strings.HasPrefix(rest, "=")
}

// value returns what a key of a line, without its comment, is set to; key is in
// lower case. Inside another value it doesn't count.
func value(line, key string) (string, bool) {
	for from := 0; ; {
		i := indexFold(line[from:], key)
		if i < 0 {
			return "", false
		}
		i += from
		from = i + len(key)
		rest := strings.TrimLeft(line[from:], " \t\f")
		if i > 0 && strings.IndexByte(" \t\f", line[i-1]) < 0 || !strings.HasPrefix(rest, "=") || !outside(line[:i]) {
			continue
		}
		return unquote(rest[1:]), true
	}
}

// outside reports whether what follows text is no part of a quoted value.
func outside(text string) bool {
	_, quoted := uncomment(text, false)
	return !quoted
}

// unquote reads a value up to the blank or comment that ends it. Blanks may
// stand in front, unless the next word is key=value itself: then it is empty.
func unquote(behind string) string {
	text := strings.TrimLeft(behind, " \t\f")
	if len(text) < len(behind) {
		word := text
		if i := strings.IndexAny(text, " \t\f"); i >= 0 {
			word = text[:i]
		}
		if eq := strings.IndexByte(word, '='); eq > 0 && !strings.ContainsAny(word[:eq], `"/,:`) {
			return ""
		}
	}
	var b strings.Builder
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		case c == '"':
			quoted = !quoted
		case !quoted && strings.IndexByte(" \t\f", c) >= 0:
			return b.String()
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// indexFold is strings.Index for a key in lower-case ASCII, in any case.
func indexFold(s, key string) int {
	for i := 0; i+len(key) <= len(s); i++ {
		if s[i]|0x20 == key[0] && strings.EqualFold(s[i:i+len(key)], key) {
			return i
		}
	}
	return -1
}
