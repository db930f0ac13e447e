package slurmjson

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gbatch/internal/model"
	"gbatch/internal/plain"
	"gbatch/internal/version"
)

// Default is the version that --json without one means.
const Default = "v0.0.43"

// Versions lists what --json= takes.
func Versions() []string {
	return []string{"v0.0.37", "v0.0.38", "v0.0.39", "v0.0.40", "v0.0.41", "v0.0.42", "v0.0.43"}
}

// ParseVersion reads --json's value.
func ParseVersion(v string) (string, error) {
	// Slurm names the plugin too, and takes flags of how fast or how large: these lists are always fast, and whole.
	v, flags, _ := strings.Cut(strings.TrimPrefix(v, "data_parser/"), "+")
	if flags != "" && flags != "fast" && flags != "prefer_refs" && flags != "minimize_refs" {
		return "", fmt.Errorf("'+%s' is no flag of the lists; leave it out", flags)
	}
	if v == "" {
		return Default, nil
	}
	if !slices.Contains(Versions(), v) {
		return "", fmt.Errorf("'%s' is no version of the lists; there are %s", v, strings.Join(Versions(), ", "))
	}
	return v, nil
}

// Writer writes JSON. Errors of the writer come out at the end.
type Writer struct {
	w    io.Writer
	b    []byte
	last byte // the last byte written
	ver  string
	Old  bool // the shape up to v0.0.39
	Err  error

	Warning string // a sentence for the frame's warnings
}

// FlushAt is how much is gathered before it is passed on.
const FlushAt = 64 << 10

// Flush passes on what is there, at most so often that writes are large.
func (j *Writer) Flush(all bool) {
	if len(j.b) == 0 || !all && len(j.b) < FlushAt {
		return
	}
	j.last = j.b[len(j.b)-1]
	if j.Err == nil {
		_, j.Err = j.w.Write(j.b)
	}
	j.b = j.b[:0]
}

// Started makes the next member one that follows nothing; Continue one that follows another: the bytes before it are
// written by somebody else.
func (j *Writer) Started() { j.last = '{' }

func (j *Writer) Continue() { j.last = '}' }

// key begins a member of an object, or with "" an element of a list.
func (j *Writer) key(name string) {
	last := j.last
	if n := len(j.b); n > 0 {
		last = j.b[n-1]
	}
	if last != 0 && last != '{' && last != '[' && last != ':' {
		j.b = append(j.b, ',')
	}
	if name != "" {
		j.b = append(AppendString(j.b, name), ':')
	}
}

// Open begins an object or a list: with name "" an element of a list. Close ends it.
func (j *Writer) Open(name string, bracket byte) {
	j.key(name)
	j.b = append(j.b, bracket)
}

func (j *Writer) Close(bracket byte) { j.b = append(j.b, bracket) }

// Str, Num, Bool and Null write a member that looks the same in every version.
func (j *Writer) Str(name, v string) {
	j.key(name)
	j.b = AppendString(j.b, v)
}

func (j *Writer) Num(name string, v int64) {
	j.key(name)
	j.b = strconv.AppendInt(j.b, v, 10)
}

// Decimal writes a number that is digits, as in 12.50, without a way over floats.
func (j *Writer) Decimal(name, digits string) {
	j.key(name)
	j.b = append(j.b, digits...)
}

func (j *Writer) Bool(name string, v bool) {
	j.key(name)
	j.b = strconv.AppendBool(j.b, v)
}

func (j *Writer) Null(name string) {
	j.key(name)
	j.b = append(j.b, "null"...)
}

// Maybe writes a number that can be missing or without a limit.
func (j *Writer) Maybe(name string, v int64, set, infinite bool) {
	if j.Old {
		j.Num(name, v)
		return
	}
	if infinite {
		v = 0
	}
	j.Open(name, '{')
	j.Bool("set", set)
	j.Bool("infinite", infinite)
	j.Num("number", v)
	j.Close('}')
}

// Real writes a number with decimals, or one that is infinite.
func (j *Writer) Real(name string, v float64) {
	inf := math.IsInf(v, 1)
	if !j.Old {
		j.Open(name, '{')
		j.Bool("set", !inf)
		j.Bool("infinite", inf)
		name = "number"
	}
	if inf {
		v = 0
	}
	j.key(name)
	j.b = strconv.AppendFloat(j.b, v, 'g', -1, 64)
	if !j.Old {
		j.Close('}')
	}
}

// Count writes a number that is there.
func (j *Writer) Count(name string, v int64) { j.Maybe(name, v, true, false) }

// Unset writes a number that is not there.
func (j *Writer) Unset(name string) { j.Maybe(name, 0, false, false) }

// Time writes a moment in seconds; 0, which is a number like others, for one that is not there.
func (j *Writer) Time(name string, t model.Time) { j.Maybe(name, t.Seconds(), true, false) }

// Words writes a list of words, or in the old shape the words with commas between.
func (j *Writer) Words(name string, words ...string) {
	if j.Old {
		j.Str(name, strings.Join(words, ","))
		return
	}
	j.List(name, words)
}

// List writes a list of words in either shape.
func (j *Writer) List(name string, words []string) {
	j.Open(name, '[')
	for _, w := range words {
		j.Str("", w)
	}
	j.Close(']')
}

// AppendString writes a string. Bytes that are no UTF-8 become U+FFFD.
func AppendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		if n := asIs(s[i:]); n > 0 {
			b = append(b, s[i:i+n]...)
			i += n
			continue
		}
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
		case c < utf8.RuneSelf: // a control character
			b = append(b, `\u00`...)
			b = append(b, "0123456789abcdef"[c>>4], "0123456789abcdef"[c&15])
		default:
			r, size := utf8.DecodeRuneInString(s[i:])
			i += size
			if size > 1 && plain.Check(s[i-size:i]) != nil { // on a terminal it would act
				const hex = "0123456789abcdef" // all of them have four digits
				b = append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
				continue
			}
			b = utf8.AppendRune(b, r)
			continue
		}
		i++
	}
	return append(b, '"')
}

// asIs says how many bytes at the beginning of a string are written as they are.
func asIs(s string) int {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return i
		}
	}
	return len(s)
}

// New gives a writer to w in the shape of a version.
func New(w io.Writer, ver string) *Writer { return &Writer{w: w, Old: ver < "v0.0.40", ver: ver} }

// Begin begins the frame and its list; Finish ends both.
func Begin(w io.Writer, list, ver string) *Writer {
	j := New(w, ver)
	j.Open("", '{')
	j.Open(list, '[')
	return j
}

// Finish ends the list and writes what stands behind it: the words of the command, the cluster and its time.
func (j *Writer) Finish(command []string, cluster string, now model.Time) error {
	j.Close(']')
	return j.Tail(command, cluster, now)
}

// Tail ends the frame behind its list.
func (j *Writer) Tail(command []string, cluster string, now model.Time) error {
	j.Count("last_update", now.Seconds())
	j.Open("meta", '{')
	j.Open("plugin", '{')
	j.Str("type", "")
	j.Str("name", "")
	j.Str("data_parser", "data_parser/"+j.ver)
	j.Str("accounting_storage", "")
	j.Close('}')
	j.Open("client", '{')
	j.Str("source", "")
	j.Str("user", "")
	j.Str("group", "")
	j.Close('}')
	j.List("command", command)
	major, rest, _ := strings.Cut(version.Slurm, ".")
	minor, micro, _ := strings.Cut(rest, ".")
	names := []string{"slurm"}
	if j.Old {
		names = append(names, "Slurm") // capital up to v0.0.39
	}
	for _, name := range names {
		j.Open(name, '{')
		j.Open("version", '{')
		j.Str("major", major)
		j.Str("micro", micro)
		j.Str("minor", minor)
		j.Close('}')
		j.Str("release", version.Slurm)
		j.Str("cluster", cluster)
		j.Close('}')
	}
	j.Close('}')
	j.Open("errors", '[')
	j.Close(']')
	j.Open("warnings", '[')
	if j.Warning != "" {
		j.Open("", '{')
		j.Str("description", j.Warning)
		j.Str("source", strings.Join(command[:min(1, len(command))], ""))
		j.Close('}')
	}
	j.Close(']')
	j.Close('}')
	j.b = append(j.b, '\n')
	j.Flush(true)
	return j.Err
}

// TRES writes one counted resource.
func (j *Writer) TRES(typ, name string, count, id int64) {
	j.Open("", '{')
	j.Str("type", typ)
	j.Str("name", name)
	j.Num("id", id)
	j.Num("count", count)
	j.Close('}')
}
