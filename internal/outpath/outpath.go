// Package outpath expands the filename patterns of -o, -e and -i (manual page sbatch(1), "filename
// pattern"): the command checks them, the node expands them. It opens no file and knows no working
// directory.
//
//	%j job id   %J job id, with ".step" in a step   %A array's job id (the job id outside an array)
//	%a array index   %b array index modulo 10   %x job name   %u user   %N short host name
//	%n node's number in the job   %s step ("batch" in the script)   %t task's rank   %% a percent sign
//
// A number after the percent sign zero-pads a numeric value to that many digits, MaxPad at most: %3a.
// A backslash anywhere switches all expansion off, and the backslashes go. Anything else is kept as it is.
package outpath

import (
	"strconv"
	"strings"
)

// MaxPad is the widest zero padding, in digits; a wider one counts as MaxPad.
const MaxPad = 10

// NoTask is what %a becomes outside an array. It is Slurm's NO_VAL, and scripts that use one pattern for
// both kinds of job know log_12_4294967294.out.
const NoTask uint32 = 4294967294

// Values are the facts that a pattern can name.
type Values struct {
	JobID    uint32
	ArrayJob uint32 // the array's job id; 0: not in an array
	Task     uint32 // the array index, where ArrayJob isn't 0
	Step     string // the step's number; "" in the batch script
	JobName  string
	User     string
	Node     string // short host name
	NodeRank int    // the node's number in the job, from 0
	TaskRank int    // the task's number in the step, from 0
}

// Expand returns pattern with its symbols replaced. It never fails: what is no symbol stays.
func Expand(pattern string, v Values) string {
	if strings.IndexByte(pattern, '\\') >= 0 {
		return strings.ReplaceAll(pattern, `\`, "")
	}
	if strings.IndexByte(pattern, '%') < 0 {
		return pattern
	}
	b := make([]byte, 0, len(pattern)+32)
	for i := 0; i < len(pattern); {
		if pattern[i] != '%' {
			b = append(b, pattern[i])
			i++
			continue
		}
		letter, pad, next := symbol(pattern, i)
		var ok bool
		if b, ok = v.append(b, letter, pad); !ok {
			b = append(b, pattern[i:next]...)
		}
		i = next
	}
	return string(b)
}

// PerNode says whether pattern names a different file on every node, and PerTask for every task: what
// a launcher needs to know before it lets several of them share one file.
func PerNode(pattern string) bool { return names(pattern, "Nn") }

// PerTask says whether pattern names a different file for every task.
func PerTask(pattern string) bool { return names(pattern, "t") }

func names(pattern, letters string) bool {
	if strings.IndexByte(pattern, '\\') >= 0 {
		return false
	}
	for i := 0; i < len(pattern); {
		if pattern[i] != '%' {
			i++
			continue
		}
		letter, _, next := symbol(pattern, i)
		if letter != 0 && strings.IndexByte(letters, letter) >= 0 {
			return true
		}
		i = next
	}
	return false
}

// symbol reads the symbol at pattern[i], a percent sign: its letter (0 at the end of the pattern), its
// padding and where the next text begins.
func symbol(pattern string, i int) (letter byte, pad, next int) {
	i++
	for i < len(pattern) && pattern[i] >= '0' && pattern[i] <= '9' {
		pad = min(pad*10+int(pattern[i]-'0'), MaxPad)
		i++
	}
	if i == len(pattern) {
		return 0, pad, i
	}
	return pattern[i], pad, i + 1
}

func (v *Values) append(b []byte, letter byte, pad int) ([]byte, bool) {
	number := func(n uint64) ([]byte, bool) {
		var digits [20]byte
		d := strconv.AppendUint(digits[:0], n, 10)
		for range pad - len(d) {
			b = append(b, '0')
		}
		return append(b, d...), true
	}
	switch letter {
	case '%':
		return append(b, '%'), true
	case 'j':
		return number(uint64(v.JobID))
	case 'J':
		b, _ = number(uint64(v.JobID))
		if v.Step != "" {
			b = append(append(b, '.'), v.Step...)
		}
		return b, true
	case 'A':
		if v.ArrayJob != 0 {
			return number(uint64(v.ArrayJob))
		}
		return number(uint64(v.JobID))
	case 'a':
		return number(uint64(v.task()))
	case 'b':
		return number(uint64(v.task() % 10))
	case 'x':
		return append(b, v.JobName...), true
	case 'u':
		return append(b, v.User...), true
	case 'N':
		return append(b, v.Node...), true
	case 'n':
		return number(uint64(max(v.NodeRank, 0)))
	case 't':
		return number(uint64(max(v.TaskRank, 0)))
	case 's':
		if v.Step == "" {
			return append(b, "batch"...), true
		}
		if n, err := strconv.ParseUint(v.Step, 10, 64); err == nil {
			return number(n)
		}
		return append(b, v.Step...), true
	}
	return b, false
}

func (v *Values) task() uint32 {
	if v.ArrayJob == 0 {
		return NoTask
	}
	return v.Task
}
