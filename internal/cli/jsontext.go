package cli

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gbatch/internal/model"
	"gbatch/internal/version"
)

// This file owns how --json is written: the text itself, and the frame that Slurm's commands put around every list. It
// is written as it comes, without a tree in memory and without the reflection that encoding/json would bring into a
// small binary. Two shapes of lists exist, after the versions of Slurm's data_parser: up to v0.0.39 states are words and
// numbers plain, from v0.0.40 states are lists and numbers have "set" and "infinite" beside them.

// jsonDefault is the version that --json without one means.
const jsonDefault = "v0.0.42"

// jsonVersions lists what --json= takes.
func jsonVersions() []string {
	return []string{"v0.0.37", "v0.0.38", "v0.0.39", "v0.0.40", "v0.0.41", "v0.0.42", "v0.0.43"}
}

// parseJSONVersion reads --json's value.
func parseJSONVersion(v string) (string, error) {
	if v == "" {
		return jsonDefault, nil
	}
	if !slices.Contains(jsonVersions(), v) {
		return "", fmt.Errorf("'%s' is no version of the lists; there are %s", v, strings.Join(jsonVersions(), ", "))
	}
	return v, nil
}

// jsonText writes JSON. Errors of the writer come out at the end.
type jsonText struct {
	w    io.Writer
	b    []byte
	last byte // the last byte written
	ver  string
	old  bool // the shape up to v0.0.39
	err  error
}

const jsonFlush = 64 << 10

// flush passes on what is there, at most so often that writes are large.
func (j *jsonText) flush(all bool) {
	if len(j.b) == 0 || !all && len(j.b) < jsonFlush {
		return
	}
	j.last = j.b[len(j.b)-1]
	if j.err == nil {
		_, j.err = j.w.Write(j.b)
	}
	j.b = j.b[:0]
}

// key begins a member of an object, or with "" an element of a list.
func (j *jsonText) key(name string) {
	last := j.last
	if n := len(j.b); n > 0 {
		last = j.b[n-1]
	}
	if last != 0 && last != '{' && last != '[' && last != ':' {
		j.b = append(j.b, ',')
	}
	if name != "" {
		j.b = append(appendJSON(j.b, name), ':')
	}
}

func (j *jsonText) open(name string, bracket byte) {
	j.key(name)
	j.b = append(j.b, bracket)
}

func (j *jsonText) close(bracket byte) { j.b = append(j.b, bracket) }

func (j *jsonText) str(name, v string) {
	j.key(name)
	j.b = appendJSON(j.b, v)
}

func (j *jsonText) num(name string, v int64) {
	j.key(name)
	j.b = strconv.AppendInt(j.b, v, 10)
}

func (j *jsonText) bool(name string, v bool) {
	j.key(name)
	j.b = strconv.AppendBool(j.b, v)
}

func (j *jsonText) null(name string) {
	j.key(name)
	j.b = append(j.b, "null"...)
}

// maybe writes a number that can be missing or without a limit.
func (j *jsonText) maybe(name string, v int64, set, infinite bool) {
	if j.old {
		j.num(name, v)
		return
	}
	j.open(name, '{')
	j.bool("set", set)
	j.bool("infinite", infinite)
	j.num("number", v)
	j.close('}')
}

// real writes a number with decimals, or one that is infinite.
func (j *jsonText) real(name string, v float64) {
	inf := math.IsInf(v, 1)
	if !j.old {
		j.open(name, '{')
		j.bool("set", !inf)
		j.bool("infinite", inf)
		name = "number"
	}
	if inf {
		v = 0
	}
	j.key(name)
	j.b = strconv.AppendFloat(j.b, v, 'g', -1, 64)
	if !j.old {
		j.close('}')
	}
}

// count writes a number that is there.
func (j *jsonText) count(name string, v int64) { j.maybe(name, v, true, false) }

// unset writes a number that is not there.
func (j *jsonText) unset(name string) { j.maybe(name, 0, false, false) }

// time writes a moment in seconds; 0 for one that is not there.
func (j *jsonText) time(name string, t model.Time) { j.maybe(name, t.Seconds(), t != 0, false) }

// words writes a list of words, or in the old shape the words with commas between.
func (j *jsonText) words(name string, words ...string) {
	if j.old {
		j.str(name, strings.Join(words, ","))
		return
	}
	j.list(name, words)
}

// list writes a list of words in either shape.
func (j *jsonText) list(name string, words []string) {
	j.open(name, '[')
	for _, w := range words {
		j.str("", w)
	}
	j.close(']')
}

// appendJSON writes a string. Bytes that are no UTF-8 become U+FFFD.
func appendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\t':
			b = append(b, `\t`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c < 0x20 || c == 0x7f:
			b = append(b, `\u00`...)
			b = append(b, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			b = utf8.AppendRune(b, r)
			i += size
			continue
		}
		i++
	}
	return append(b, '"')
}

// jsonFrame begins the frame and its list, to be written to w in the shape of a version; finish ends both.
func jsonFrame(w io.Writer, list, ver string) *jsonText {
	j := &jsonText{w: w, old: ver < "v0.0.40", ver: ver}
	j.open("", '{')
	j.open(list, '[')
	return j
}

// finish ends the list and writes what stands behind it: the words of the command, the cluster and its time.
func (j *jsonText) finish(command []string, cluster string, now model.Time) error {
	j.close(']')
	return j.tail(command, cluster, now)
}

// tail ends the frame behind its list.
func (j *jsonText) tail(command []string, cluster string, now model.Time) error {
	j.count("last_update", now.Seconds())
	j.open("meta", '{')
	j.open("plugin", '{')
	j.str("type", "")
	j.str("name", "")
	j.str("data_parser", "data_parser/"+j.ver)
	j.str("accounting_storage", "")
	j.close('}')
	j.open("client", '{')
	j.str("source", "")
	j.str("user", "")
	j.str("group", "")
	j.close('}')
	j.list("command", command)
	major, rest, _ := strings.Cut(version.Slurm, ".")
	minor, micro, _ := strings.Cut(rest, ".")
	names := []string{"slurm"}
	if j.old {
		names = append(names, "Slurm") // capital up to v0.0.39
	}
	for _, name := range names {
		j.open(name, '{')
		j.open("version", '{')
		j.str("major", major)
		j.str("micro", micro)
		j.str("minor", minor)
		j.close('}')
		j.str("release", version.Slurm)
		j.str("cluster", cluster)
		j.close('}')
	}
	j.close('}')
	j.open("errors", '[')
	j.close(']')
	j.open("warnings", '[')
	j.close(']')
	j.close('}')
	j.b = append(j.b, '\n')
	j.flush(true)
	return j.err
}
