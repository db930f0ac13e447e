package conf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// Limits of what is read.
const (
	// MaxFileBytes is the size of one file.
	MaxFileBytes = 16 << 20
	// MaxFiles is how many files one configuration may have, includes counted
	// as often as they are named.
	MaxFiles = 256
	// MaxIncludeDepth is how deep Include may nest.
	MaxIncludeDepth = 10
	// MaxLineBytes is the length of one line with its continuations.
	MaxLineBytes = 1 << 20
)

// source is the source of files: the machine, or an fs.FS.
type source struct {
	open func(name string) (fs.File, error)
	join func(dir, name string) string
	dir  func(name string) string
	abs  func(name string) string // best effort
}

func osSource() source {
	return source{
		open: func(name string) (fs.File, error) { return os.Open(name) },
		join: func(dir, name string) string {
			if filepath.IsAbs(name) {
				return filepath.Clean(name)
			}
			return filepath.Join(dir, name)
		},
		dir: filepath.Dir,
		abs: func(name string) string {
			if abs, err := filepath.Abs(name); err == nil {
				return abs
			}
			return name // only without a working directory
		},
	}
}

func fsSource(fsys fs.FS) source {
	return source{
		open: fsys.Open,
		join: func(dir, name string) string {
			if path.IsAbs(name) {
				return path.Clean(name) // no fs.FS opens this: the error names it
			}
			return path.Join(dir, name)
		},
		dir: path.Dir,
		abs: func(name string) string { return name },
	}
}

// exists reports whether name can be opened; an error other than "not there"
// counts as existing, so that reading it reports why.
func (s source) exists(name string) bool {
	f, err := s.open(name)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	_ = f.Close() // nothing was written
	return true
}

// read returns a file's text without byte order mark, or what is wrong with it.
func (s source) read(name string) (text []byte, why, hint string) {
	f, err := s.open(name)
	if err != nil {
		return nil, "can't be read: " + cause(err), ""
	}
	defer func() { _ = f.Close() }() // nothing was written
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() && info.IsDir() {
		return nil, "is a directory", "name the file in it"
	}
	text, err = io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, "can't be read: " + cause(err), ""
	}
	if len(text) > MaxFileBytes {
		return nil, fmt.Sprintf("is larger than %d MiB", MaxFileBytes>>20),
			"use host lists such as n[1-1000] instead of one line per node"
	}
	if bytes.HasPrefix(text, []byte{0xff, 0xfe}) || bytes.HasPrefix(text, []byte{0xfe, 0xff}) {
		return nil, "is UTF-16", "save it as UTF-8"
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	for i, c := range text {
		if c < 0x20 && c != '\t' && c != '\n' && c != '\r' && c != '\f' || c == 0x7f {
			return nil, fmt.Sprintf("isn't a text file: byte 0x%02x at offset %d", c, i), "restore it from a copy"
		}
	}
	return text, "", ""
}

// cause strips "open /the/path: " from a file error: the problem names the file.
func cause(err error) string {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// pair is one key=value.
type pair struct {
	key   string
	value string
	at    pos
}

// statement is one line, with its continuations, of a file.
type statement struct {
	pairs []pair
	at    pos
	last  int // its last line
}

// reader turns files into statements.
type reader struct {
	src   source
	probs *problems
	// clusterName replaces %c in Include; it is the one read so far.
	clusterName string
	files       []string
	// contents are hashed in the order of reading.
	hash  io.Writer
	out   []statement
	unset []unset // names in Unset lines
	// included are the Include lines.
	included []Surveyed
}

// readFile appends the statements of a file and of those that it includes.
// chain holds the files that are being read now, to notice a circle.
func (r *reader) readFile(name string, from pos, chain []string) {
	at := from
	if at.file == "" {
		at = pos{file: name}
	}
	for _, open := range chain {
		if open == name {
			r.probs.errorf(at, "remove this Include", "Include %s: the file includes itself", shown(name))
			return
		}
	}
	if len(chain) > MaxIncludeDepth {
		r.probs.errorf(at, "include it from the main file", "Include nests more than %d deep", MaxIncludeDepth)
		return
	}
	if text, ok := r.take(name, from); ok {
		r.readText(name, text, append(chain, name))
	}
}

// take reads the text of one file, and counts it.
func (r *reader) take(name string, from pos) (text []byte, ok bool) {
	at := from
	if at.file == "" {
		at = pos{file: name}
	}
	if len(r.files) >= MaxFiles {
		r.probs.errorf(at, "", "more than %d files", MaxFiles)
		return nil, false
	}
	r.probs.reading(name)
	r.files = append(r.files, name)
	text, why, hint := r.src.read(name)
	if why != "" {
		if from.file != "" {
			r.probs.errorf(from, hint, "included file %s %s", name, why)
		} else {
			r.probs.errorf(pos{file: name}, hint, "%s", why)
		}
		return nil, false
	}
	if r.hash != nil {
		fmt.Fprintf(r.hash, "%s %d\n", path.Base(name), len(text))
		_, _ = r.hash.Write(text) // a hash never fails
	}
	return text, true
}

// readText cuts a file into lines, joins continuations and takes comments off. A comment always ends at the end of its
// line.
func (r *reader) readText(name string, text []byte, chain []string) {
	var l joinedLine
	for line := 1; len(text) > 0; line++ {
		raw := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			raw, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		goesOn := l.add(raw, line)
		if l.text.Len() > MaxLineBytes {
			r.probs.errorf(pos{name, line}, "use host lists, or several lines", "line longer than %d bytes", MaxLineBytes)
		} else if goesOn && len(text) > 0 {
			continue
		} else if strings.TrimSpace(l.text.String()) != "" {
			r.readLine(name, &l, chain)
		}
		l = joinedLine{}
	}
}

// joinedLine is a line with its continuations.
type joinedLine struct {
	text   strings.Builder
	starts []start
	quoted bool // a quote is open at the end of the text so far
}

// start says that the physical line begins at an offset of the joined text.
type start struct{ offset, line int }

// add appends a physical line without its comment and trailing blanks, and reports whether a backslash at its end asks
// for the next one. "#" starts a comment except after a backslash or inside quotes.
func (l *joinedLine) add(raw []byte, line int) (goesOn bool) {
	quoted := l.quoted
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '"':
			quoted = !quoted
		case '#':
			if !quoted {
				raw = raw[:i]
			}
		}
	}
	raw = bytes.TrimRight(raw, " \t\r\f")
	backslashes := 0
	for backslashes < len(raw) && raw[len(raw)-1-backslashes] == '\\' {
		backslashes++
	}
	if goesOn = backslashes%2 == 1; goesOn {
		raw = raw[:len(raw)-1]
	}
	l.starts = append(l.starts, start{l.text.Len(), line})
	l.text.Write(raw)
	l.quoted = quoted
	return goesOn
}

// at returns the physical line of an offset.
func (l *joinedLine) at(offset int) int {
	i := sort.Search(len(l.starts), func(i int) bool { return l.starts[i].offset > offset })
	return l.starts[max(i-1, 0)].line
}

// last returns the last physical line.
func (l *joinedLine) last() int { return l.starts[len(l.starts)-1].line }

// readLine reads an Include, an Unset or the pairs of one joined line.
func (r *reader) readLine(name string, l *joinedLine, chain []string) {
	text := l.text.String()
	at := pos{name, l.at(len(text) - len(strings.TrimLeft(text, " \t\f")))}
	word := strings.TrimLeft(text, " \t\f")
	rest := ""
	if i := strings.IndexAny(word, " \t\f"); i >= 0 {
		word, rest = word[:i], strings.TrimSpace(word[i:])
	}
	if strings.EqualFold(word, "include") && !strings.HasPrefix(rest, "=") {
		r.include(rest, at, chain)
		return
	}
	if strings.EqualFold(word, "unset") && !strings.HasPrefix(rest, "=") {
		r.unsetLine(rest, at)
		return
	}
	if rest == "" && isSchedWord(word) { // bf_continue alone: unknownKey says where it belongs, and takes it
		r.out = append(r.out, statement{pairs: []pair{{word, "", at}}, at: at, last: l.last()})
		return
	}
	if pairs := r.readPairs(name, l, text); len(pairs) > 0 {
		r.out = append(r.out, statement{pairs: pairs, at: pairs[0].at, last: l.last()})
	}
}

func (r *reader) include(name string, at pos, chain []string) {
	name = strings.Trim(name, `"`)
	if name == "" {
		r.probs.errorf(at, "write Include nodes.conf", "Include names no file")
		return
	}
	if strings.Contains(name, "%c") && r.clusterName == "" {
		r.probs.errorf(at, "put the ClusterName line above it", "Include %s needs the ClusterName", shown(name))
		return
	}
	file := r.src.join(r.src.dir(at.file), strings.ReplaceAll(name, "%c", r.clusterName))
	r.included = append(r.included,
		Surveyed{File: at.file, Line: at.line, Last: at.line, IncludeName: name, IncludeFile: file})
	r.readFile(file, at, chain)
}

// readPairs reads the key=value pairs of a joined line.
func (r *reader) readPairs(name string, l *joinedLine, all string) []pair {
	var pairs []pair
	for text := all; ; {
		if text = strings.TrimLeft(text, " \t\f"); text == "" {
			return pairs
		}
		at := pos{name, l.at(len(all) - len(text))}
		key := text
		if end := strings.IndexAny(text, "= \t\f"); end >= 0 {
			key = text[:end]
		}
		rest := strings.TrimLeft(text[len(key):], " \t\f")
		if key == "" || !strings.HasPrefix(rest, "=") {
			text = r.skipWords(text, at)
			continue
		}
		if op := key[len(key)-1:]; len(key) > 1 && strings.Contains("+-*/", op) {
			key = key[:len(key)-1]
			r.probs.errorf(at, "write the whole value after =", "%s: %q is not possible", shown(key), op+"=")
		}
		value, rest, why := readValue(rest[1:])
		if why != "" {
			r.probs.errorf(at, fmt.Sprintf(`write %s="…"`, key), "%s: %s", shown(key), why)
			return pairs
		}
		text = rest
		if !utf8.ValidString(key + value) {
			r.probs.errorf(at, "save the file as UTF-8", "%s holds bytes that aren't UTF-8",
				shown(strings.ToValidUTF8(key, "?")))
			continue
		}
		if strings.EqualFold(key, "ClusterName") {
			r.clusterName = value
		}
		pairs = append(pairs, pair{key, value, at})
	}
}

// skipWords reports what isn't key=value, up to the next word that is.
func (r *reader) skipWords(text string, at pos) (rest string) {
	rest = text
	for rest != "" {
		word := rest
		if i := strings.IndexAny(rest, " \t\f"); i >= 0 {
			word = rest[:i]
		}
		behind := strings.TrimLeft(rest[len(word):], " \t\f")
		if strings.IndexByte(word, '=') > 0 || word != "=" && strings.HasPrefix(behind, "=") && len(rest) < len(text) {
			break
		}
		rest = behind
	}
	words := strings.TrimRight(text[:len(text)-len(rest)], " \t\f")
	r.probs.errorf(at, `write key=value, quotes around a value with blanks, or # in front of a comment`,
		"%s is not key=value", shown(words))
	return rest
}

// readValue reads one value. Blanks end it outside quotes; a backslash takes
// the next character as it is.
func readValue(behind string) (value, rest, why string) {
	text := strings.TrimLeft(behind, " \t\f")
	if len(text) < len(behind) {
		// Blanks behind "=": the value follows ("Key = value"), unless the next
		// word is a pair itself ("Key= Next=1", an empty value).
		word := text
		if i := strings.IndexAny(text, " \t\f"); i >= 0 {
			word = text[:i]
		}
		if eq := strings.IndexByte(word, '='); eq > 0 && !strings.ContainsAny(word[:eq], `"/,:`) {
			return "", text, ""
		}
	}
	var b strings.Builder
	quoted := false
	i := 0
scan:
	for ; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ' ' || c == '\t' || c == '\f'):
			break scan
		default:
			b.WriteByte(c)
		}
	}
	if quoted {
		return "", "", "the quote is never closed"
	}
	return b.String(), text[i:], ""
}

// Unset is gbatch's own statement, beside Include:
//
//	Include /etc/slurm/slurm.conf
//	Unset SlurmctldHost,StateSaveLocation
//	SlurmctldHost=here(127.0.0.1:6817)
//
// cancels the lines above for the named settings, as if those lines were not there. With it a file can include another
// one and replace some settings. Node, partition and set lines can't be unset, but where nodes are can (placeKeys).

// placeKeys are the keys of node lines that Unset may name: another machine's addresses.
var placeKeys = []string{"NodeHostname", "NodeAddr", "BcastAddr", "Port"}

// unset is a name in an Unset line.
type unset struct {
	key string
	at  pos
}

// unsetLine removes settings that have been read so far.
func (r *reader) unsetLine(rest string, at pos) {
	names := splitList(strings.Join(strings.Fields(rest), ","))
	if len(names) == 0 {
		r.probs.errorf(at, "write Unset SlurmctldHost", "Unset names no setting")
	}
	for _, name := range names {
		r.unset = append(r.unset, unset{name, at})
		for i := range r.out {
			s := &r.out[i]
			if len(s.pairs) > 0 && (recordKey(s.pairs[0].key) == "") != hasFold(placeKeys, name) {
				s.pairs = dropKey(s.pairs, name)
			}
		}
	}
}

func dropKey(pairs []pair, name string) []pair {
	out := pairs[:0:0]
	for _, p := range pairs {
		if !strings.EqualFold(p.key, name) {
			out = append(out, p)
		}
	}
	return out
}

// checkUnset reports names in Unset lines that no setting has.
func (l *loader) checkUnset(list []unset) {
	for _, u := range list {
		if l.settings.byName[strings.ToLower(u.key)] == nil && !hasFold(placeKeys, u.key) {
			hint := "see gbatch.conf(5) for the settings"
			if near := nearest(u.key, append(slices.Clone(l.settings.names()), placeKeys...)); near != "" {
				hint = "write Unset " + near
			}
			l.probs.errorf(u.at, hint, "Unset: %s is not a setting", shown(u.key))
		}
	}
}
