package script

import (
	"strconv"
	"strings"
)

// foreign.go reads the lines of two other batch systems, #PBS and #BSUB, as sbatch's options. What has no counterpart
// is left out and named in the one warning that such a script gets.

// maxForeign bounds the lines of another system that count.
const maxForeign = 256

// foreignLine reads a line of another batch system; ok is false for any other line.
func (s *Script) foreignLine(n int, line string) (ok bool) {
	for prefix, read := range foreignReaders {
		rest, is := strings.CutPrefix(line, prefix)
		if !is || !option(strings.TrimLeft(rest, " \t")) {
			continue
		}
		args, _, problem := words(rest, true)
		if problem != "" || len(s.Foreign) == maxForeign {
			s.Unread = append(s.Unread, prefix+rest)
			return true
		}
		d := Directive{Line: n}
		for len(args) > 0 {
			var out []string
			var used int
			if out, used = read(args); out == nil {
				s.Unread = append(s.Unread, prefix+" "+strings.Join(args[:used], " "))
			}
			d.Args = append(d.Args, out...)
			args = args[used:]
		}
		s.Foreign = append(s.Foreign, d)
		return true
	}
	return false
}

// foreignReaders read the first option of a line: the words for sbatch, nil where there are none, and the number of
// words that were used.
var foreignReaders = map[string]func([]string) ([]string, int){"#PBS": pbs, "#BSUB": bsub}

// valueOf splits an option from its value, which may be the next word.
func valueOf(args []string, flags string) (letter, value string, used int) {
	w := args[0]
	if len(w) < 2 || w[0] != '-' || w[1] == '-' {
		return "", "", 1
	}
	letter = w[1:2]
	switch {
	case strings.Contains(flags, letter):
		return letter, "", 1
	case len(w) > 2:
		return letter, w[2:], 1
	case len(args) > 1:
		return letter, args[1], 2
	}
	return letter, "", 1
}

// path drops the host of host:/path.
func path(v string) string {
	if host, file, ok := strings.Cut(v, ":"); ok && !strings.Contains(host, "/") {
		return file
	}
	return v
}

// pbs reads an option of qsub.
func pbs(args []string) (out []string, used int) {
	letter, v, used := valueOf(args, "hIVxXz")
	one := func(option string) []string { return []string{"--" + option + "=" + v} }
	switch letter {
	case "A":
		out = one("account")
	case "a":
		out = pbsBegin(v)
	case "e":
		v = path(v)
		out = one("error")
	case "o":
		v = path(v)
		out = one("output")
	case "h":
		out = []string{"--hold"}
	case "J", "t":
		out = one("array")
	case "j", "k", "S", "C", "c", "u": // output and error are one file by default; a script's first line names its shell
		out = []string{}
	case "l":
		out = pbsResources(v)
	case "M":
		out = one("mail-user")
	case "m":
		out = pbsMail(v)
	case "N":
		out = one("job-name")
	case "q":
		v, _, _ = strings.Cut(v, "@")
		out = one("partition")
	case "r":
		out = []string{"--no-requeue"}
		if strings.EqualFold(v, "y") {
			out = []string{"--requeue"}
		}
	case "V": // as by default
		out = []string{}
	case "v":
		out = []string{"--export=ALL," + v}
	case "W":
		out = pbsAttributes(v)
	}
	return out, used
}

// pbsBegin reads [[[[CC]YY]MM]DD]hhmm[.SS].
func pbsBegin(v string) []string {
	digits, seconds, _ := strings.Cut(v, ".")
	_, err := strconv.ParseUint(digits, 10, 64)
	if n := len(digits); err != nil || n < 4 || n > 12 || n%2 != 0 {
		return nil
	}
	k := len(digits) - 4
	clock := digits[k:k+2] + ":" + digits[k+2:]
	if seconds != "" {
		clock += ":" + seconds
	}
	switch date := digits[:k]; len(date) {
	case 0:
		return []string{"--begin=" + clock}
	case 4:
		return []string{"--begin=" + date[:2] + "/" + date[2:] + "-" + clock}
	case 6:
		return []string{"--begin=20" + date[:2] + "-" + date[2:4] + "-" + date[4:] + "T" + clock}
	case 8:
		return []string{"--begin=" + date[:4] + "-" + date[4:6] + "-" + date[6:] + "T" + clock}
	}
	return nil
}

// pbsMail reads the letters of -m.
func pbsMail(v string) []string {
	var types []string
	for _, c := range v {
		switch c {
		case 'a':
			types = append(types, "FAIL")
		case 'b':
			types = append(types, "BEGIN")
		case 'e':
			types = append(types, "END")
		case 'n':
			types = append(types, "NONE")
		default:
			return nil
		}
	}
	return []string{"--mail-type=" + strings.Join(types, ",")}
}

// pbsAttributes reads -W: depend=..., umask=... and the like.
func pbsAttributes(v string) []string {
	if how, ok := strings.CutPrefix(v, "depend="); ok {
		return []string{"--dependency=" + how}
	}
	return nil
}

// pbsResources reads -l; a part that is not known makes the whole line unread, since a job with less than it asked for
// is worse than one that is not submitted as meant.
func pbsResources(v string) []string {
	out := []string{}
	for item := range strings.SplitSeq(v, ",") {
		key, value, _ := strings.Cut(item, "=")
		switch key {
		case "walltime":
			out = append(out, "--time="+value)
		case "mem", "vmem":
			out = append(out, "--mem="+sizeOf(value))
		case "pmem", "pvmem":
			out = append(out, "--mem-per-cpu="+sizeOf(value))
		case "ncpus":
			out = append(out, "--ntasks=1", "--cpus-per-task="+value)
		case "procs", "mppwidth":
			out = append(out, "--ntasks="+value)
		case "mppnppn":
			out = append(out, "--ntasks-per-node="+value)
		case "mppdepth":
			out = append(out, "--cpus-per-task="+value)
		case "ngpus", "naccelerators", "gpus":
			out = append(out, "--gpus-per-node="+value)
		case "file":
			out = append(out, "--tmp="+sizeOf(value))
		case "nice":
			out = append(out, "--nice="+value)
		case "cput", "pcput", "place", "software", "arch", "opsys":
		case "nodes":
			words := pbsNodes(value)
			if words == nil {
				return nil
			}
			out = append(out, words...)
		case "select":
			words := pbsSelect(value)
			if words == nil {
				return nil
			}
			out = append(out, words...)
		default:
			return nil
		}
	}
	return out
}

// pbsNodes reads nodes=N[:ppn=M][:gpus=K][:feature] or nodes=name:ppn=M; several parts with + are names. Some write
// nodes=N+ppn=M.
func pbsNodes(v string) []string {
	var out, names, features []string
	if first, rest, more := strings.Cut(v, "+"); more && strings.HasPrefix(rest, "ppn=") && !strings.Contains(rest, "+") {
		v = first + ":" + rest
	}
	for part := range strings.SplitSeq(v, "+") {
		words := strings.Split(part, ":")
		nodes, err := strconv.ParseUint(words[0], 10, 31)
		if err != nil {
			names = append(names, words[0])
		} else if strings.Contains(v, "+") {
			return nil // nodes of several kinds
		} else {
			out = append(out, "--nodes="+words[0])
		}
		for _, w := range words[1:] {
			key, value, valued := strings.Cut(w, "=")
			switch {
			case !valued:
				features = append(features, w)
			case key == "ppn":
				if each, err := strconv.ParseUint(value, 10, 16); err == nil && nodes > 0 {
					out = append(out, "--ntasks="+strconv.FormatUint(nodes*each, 10))
				}
				out = append(out, "--ntasks-per-node="+value)
			case key == "gpus":
				out = append(out, "--gpus-per-node="+value)
			default:
				return nil
			}
		}
	}
	if len(names) > 0 {
		out = append(out, "--nodelist="+strings.Join(names, ","))
	}
	if len(features) > 0 {
		out = append(out, "--constraint="+strings.Join(features, "&"))
	}
	return out
}

// pbsSelect reads one chunk, N:ncpus=...:mpiprocs=...:mem=...:ngpus=...
func pbsSelect(v string) []string {
	words := strings.Split(v, ":")
	if _, err := strconv.ParseUint(words[0], 10, 31); err != nil || strings.Contains(v, "+") {
		return nil
	}
	out := []string{"--nodes=" + words[0]}
	cpus, ranks, threads := 0, 0, 0
	for _, w := range words[1:] {
		key, value, _ := strings.Cut(w, "=")
		n, err := strconv.Atoi(value)
		switch key {
		case "ncpus", "mpiprocs", "ompthreads":
			if err != nil || n < 1 {
				return nil
			}
			switch key {
			case "ncpus":
				cpus = n
			case "mpiprocs":
				ranks = n
			default:
				threads = n
			}
		case "mem":
			out = append(out, "--mem="+sizeOf(value))
		case "ngpus", "naccelerators":
			out = append(out, "--gpus-per-node="+value)
		default:
			return nil
		}
	}
	if ranks == 0 && cpus > 0 { // one process with all CPUs
		ranks = 1
	}
	if ranks > 0 {
		out = append(out, "--ntasks-per-node="+strconv.Itoa(ranks))
		if each := max(cpus/ranks, threads); each > 1 {
			out = append(out, "--cpus-per-task="+strconv.Itoa(each))
		}
	}
	return out
}

// sizeOf drops the b and w of 4gb and 4gw; PBS counts bytes where there is no unit.
func sizeOf(v string) string {
	low := strings.ToLower(v)
	if text, ok := strings.CutSuffix(low, "b"); ok && text != "" {
		low = text
	}
	if n, err := strconv.ParseUint(low, 10, 63); err == nil { // bytes
		return strconv.FormatUint(max(n>>10, 1), 10) + "K"
	}
	return strings.ToUpper(low)
}

// bsub reads an option of bsub.
func bsub(args []string) (out []string, used int) {
	letter, v, used := valueOf(args, "xHrNBI")
	one := func(option string) []string { return []string{"--" + option + "=" + v} }
	switch letter {
	case "c", "R", "u", "L", "E", "g", "a", "I":
	case "e":
		out = one("error")
	case "o":
		out = one("output")
	case "i":
		out = one("input")
	case "J":
		name, index, array := strings.Cut(v, "[")
		if name != "" {
			out = append(out, "--job-name="+name)
		}
		if list, limit, ok := strings.Cut(index, "]"); array && ok {
			out = append(out, "--array="+list+limit)
		}
	case "m":
		v = strings.Join(strings.Fields(v), ",")
		out = one("nodelist")
	case "M":
		out = []string{"--mem-per-cpu=" + lsfMemory(v)}
	case "n":
		v, _, _ = strings.Cut(v, ",")
		out = one("ntasks")
	case "P", "G":
		out = one("account")
	case "q":
		out = one("partition")
	case "W":
		out = lsfLimit(v)
	case "x":
		out = []string{"--exclusive"}
	case "H":
		out = []string{"--hold"}
	case "r":
		out = []string{"--requeue"}
	case "N":
		out = []string{"--mail-type=END"}
	case "B":
		out = []string{"--mail-type=BEGIN"}
	}
	return out, used
}

// lsfMemory is an amount in KB, unless it has a unit.
func lsfMemory(v string) string {
	if _, err := strconv.ParseUint(v, 10, 63); err == nil {
		return v + "K"
	}
	return sizeOf(v)
}

// lsfLimit reads [hours:]minutes[/host].
func lsfLimit(v string) []string {
	v, _, _ = strings.Cut(v, "/")
	if hours, minutes, ok := strings.Cut(v, ":"); ok {
		return []string{"--time=" + hours + ":" + minutes + ":00"}
	}
	return []string{"--time=" + v}
}

// ForeignWarning says how the lines of another batch system were read; "" without such lines.
func (s *Script) ForeignWarning() string {
	if len(s.Foreign) == 0 && len(s.Unread) == 0 {
		return ""
	}
	var read []string
	for _, d := range s.Foreign {
		read = append(read, d.Args...)
	}
	text := "the #PBS or #BSUB lines have no options that gbatch knows"
	if len(read) > 0 {
		text = "the #PBS or #BSUB lines are read as #SBATCH " + strings.Join(read, " ")
	}
	if len(s.Unread) > 0 {
		text += "; without effect: " + strings.Join(s.Unread, ", ")
	}
	return text
}
