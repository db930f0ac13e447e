package jobtext

import (
	"fmt"
	"strconv"
	"strings"

	"gbatch/internal/model"
)

// RefText gives a reference as users write it.
func RefText(r model.JobRef) string {
	id := strconv.Itoa(int(r.Job))
	switch {
	case r.Task != model.NoTask:
		return id + "_" + strconv.Itoa(int(r.Task))
	case len(r.Tasks) > 0:
		return id + "_[" + TasksText(r.Tasks) + "]"
	case r.Het > 0:
		return id + "+" + strconv.Itoa(int(r.Het-1))
	}
	return id
}

// JobID gives a job's id as gqueue shows it: 12, 12_3, 12_[4-9%2], 12+1.
func JobID(j *model.Job) string {
	switch {
	case j.IsArray():
		t := TasksText(j.Tasks)
		if j.Throttle > 0 {
			t += "%" + strconv.Itoa(int(j.Throttle))
		}
		return strconv.Itoa(int(j.ArrayID)) + "_[" + t + "]"
	case j.ArrayID != 0 && j.Task != model.NoTask:
		return strconv.Itoa(int(j.ArrayID)) + "_" + strconv.Itoa(int(j.Task))
	case j.Het != nil:
		return j.Het.Name()
	}
	return strconv.Itoa(int(j.ID))
}

func orNA(s string) string {
	if s == "" {
		return "N/A"
	}
	return s
}

// KeyValues builds scontrol's key=value output: lines of words, or one line for all (-o).
type KeyValues struct {
	lines [][]string
}

// line begins a new line of words.
func (r *KeyValues) line(words ...string) { r.lines = append(r.lines, words) }

// given adds a line with a value, if there is one.
func (r *KeyValues) given(key, value string) {
	if value != "" {
		r.line(KV(key, value))
	}
}

// Text gives the record. Continuation lines are indented by three blanks, as tools expect.
func (r *KeyValues) Text(oneLine bool) string {
	var b strings.Builder
	for i, words := range r.lines {
		switch {
		case i > 0 && oneLine:
			b.WriteByte(' ')
		case i > 0:
			b.WriteString("\n   ")
		}
		for k, w := range words {
			if k > 0 {
				b.WriteByte(' ')
			}
			b.WriteString(w)
		}
	}
	b.WriteByte('\n')
	if !oneLine {
		b.WriteByte('\n')
	}
	return b.String()
}

func KV(key string, value any) string { return key + "=" + fmt.Sprint(value) }

func orNull(s string) string {
	if s == "" {
		return "(null)"
	}
	return s
}

func yesNum(b bool) int {
	if b {
		return 1
	}
	return 0
}

// oneLine puts a sentence that may come from elsewhere on one line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// exitText gives an exit as Slurm prints it: the code and the signal.
func exitText(x model.Exit) string { return fmt.Sprintf("%d:%d", x.Code, x.Signal) }

// TasksText gives an array's tasks as Slurm lists them: seven or more at the same distance as 1-13:2, others one by
// one, neighbours as a range.
func TasksText(s model.TaskSet) string {
	n := s.Count()
	if n > maxListed {
		return s.String()
	}
	all := make([]int32, 0, n)
	s.Each(func(i int32) bool { all = append(all, i); return true })
	if step := stepOf(all); step > 1 && n >= leastStepped {
		return strconv.Itoa(int(all[0])) + "-" + strconv.Itoa(int(all[n-1])) + ":" + strconv.Itoa(int(step))
	}
	var b []byte
	for i := 0; i < n; {
		last := i
		for last+1 < n && all[last+1] == all[last]+1 {
			last++
		}
		if i > 0 {
			b = append(b, ',')
		}
		if b = strconv.AppendInt(b, int64(all[i]), 10); last > i {
			b = strconv.AppendInt(append(b, '-'), int64(all[last]), 10)
		}
		i = last + 1
	}
	return string(b)
}

const (
	leastStepped = 7
	maxListed    = 4096 // longer lists are shown as they were asked for
)

// stepOf gives the distance of tasks that all have the same, or 0.
func stepOf(all []int32) int32 {
	if len(all) < 2 {
		return 0
	}
	step := all[1] - all[0]
	for i := 2; i < len(all); i++ {
		if all[i]-all[i-1] != step {
			return 0
		}
	}
	return step
}
