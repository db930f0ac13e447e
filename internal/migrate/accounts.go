package migrate

import (
	"fmt"
	"slices"
	"strings"
)

// Accounts makes one flat file of a `sacctmgr dump` and of what `sacctmgr -P show qos` prints. The dump names QOS and
// does not have them.
type Accounts struct {
	Text string // for acctmgr.LoadForeign

	lines []place // where each line of Text is from
}

// place is a line of an input file.
type place struct {
	file string
	line int
}

// At gives the file and the line that a line of Text is from.
func (a *Accounts) At(line int) (string, int) {
	if line < 1 || line > len(a.lines) {
		return a.lines[len(a.lines)-1].file, 0
	}
	p := a.lines[line-1]
	return p.file, p.line
}

// parentShares is what sacctmgr dump writes for Fairshare=parent.
const parentShares = "2147483647"

// ReadAccounts reads the two files; the one of QOS may be empty. known says which QOS the cluster has. Its errors say
// what to print instead.
func ReadAccounts(dumpFile, dump, qosFile, qos string, known func(name string) bool, r *Report) (*Accounts, error) {
	a := &Accounts{}
	var out []string
	add := func(text, file string, line int) {
		out, a.lines = append(out, text), append(a.lines, place{file, line})
	}
	defined := map[string]bool{}
	if qos != "" {
		if err := readQOS(qosFile, qos, r, func(name, text string, line int) {
			defined[strings.ToLower(name)] = true
			add(text, qosFile, line)
		}); err != nil {
			return nil, err
		}
	}
	if dump != "" && !strings.Contains(dump, "Cluster - ") {
		return nil, fmt.Errorf("%s: there is no Cluster line; `sacctmgr dump CLUSTER file=FILE` writes one", dumpFile)
	}
	var body []string
	n := 0
	for line := range strings.SplitSeq(dump, "\n") {
		n++
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' {
			if kind, _, ok := strings.Cut(line, " "); ok {
				r.Add(Kept, dumpFile, n, kind, "")
			}
			if shares := ":Fairshare=" + parentShares; strings.Contains(line+":", shares+":") {
				line = strings.Replace(line, shares, ":Fairshare=parent", 1)
				r.Add(Translated, dumpFile, n, "Fairshare="+parentShares, "Fairshare=parent, which the number means")
			}
			for _, name := range qosOf(line) {
				if !defined[name] && !known(name) {
					defined[name] = true
					add("#QOS - '"+name+"'", dumpFile, n)
					r.Add(Person, dumpFile, n, "QOS="+name, "the dump has no QOS: it is made without limits and with priority 0; "+
						"print them with `sacctmgr -P show qos`, and give the file with --qos")
				}
			}
		}
		body = append(body, line)
	}
	for i, line := range body {
		add(line, dumpFile, i+1)
	}
	if a.Text = strings.Join(out, "\n"); len(a.lines) == 0 {
		return nil, fmt.Errorf("%s is empty", dumpFile)
	}
	return a, nil
}

// qosOf gives the QOS that a line of a dump names.
func qosOf(line string) (names []string) {
	for _, key := range []string{":QOS=", ":DefaultQOS="} {
		_, value, found := strings.Cut(line, key)
		if !found {
			continue
		}
		if value != "" && (value[0] == '\'' || value[0] == '"') {
			value, _, _ = strings.Cut(value[1:], value[:1])
		} else {
			value, _, _ = strings.Cut(value, ":")
		}
		for name := range strings.SplitSeq(strings.ToLower(value), ",") {
			if name = strings.TrimLeft(name, "+-"); name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// ourQOS are the columns of `sacctmgr show qos` whose option has another name here; "" has no meaning.
var ourQOS = map[string]string{"descr": "Description", "usagethres": "UsageThreshold", "id": "", "name": "",
	"grpsubmit": "GrpSubmitJobs", "maxsubmitpu": "MaxSubmitPU", "maxsubmitpa": "MaxSubmitPA"}

// readQOS makes a #QOS line of each line of a table with a header.
func readQOS(file, text string, r *Report, each func(name, text string, line int)) error {
	var head []string
	name := -1
	n := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		line = strings.TrimRight(line, "\r")
		if line == "" {
			continue
		}
		fields := strings.Split(line, "|")
		if head == nil {
			head = fields
			name = slices.IndexFunc(head, func(s string) bool { return strings.EqualFold(s, "name") })
			if name < 0 {
				return fmt.Errorf("%s: the first line names no column Name; `sacctmgr -P show qos` prints what is wanted", file)
			}
			continue
		}
		if len(fields) < len(head) || fields[name] == "" {
			r.Add(Person, file, n, "", "%d columns where the header has %d", len(fields), len(head))
			continue
		}
		var b strings.Builder
		b.WriteString("#QOS - '" + fields[name] + "'")
		for i, label := range head {
			value := strings.ReplaceAll(fields[i], "'", "\"")
			key := label
			if our, other := ourQOS[strings.ToLower(label)]; other {
				key = our
			}
			switch {
			case key == "" || value == "":
			case strings.EqualFold(key, "flags"):
				for f := range strings.SplitSeq(value, ",") {
					b.WriteString(":Flags+='" + f + "'")
				}
			case strings.EqualFold(key, "gracetime"):
				ms, ok := spanMS(value)
				if !ok {
					r.Add(Person, file, n, label+"="+value, "it is no time")
					continue
				}
				fmt.Fprintf(&b, ":GraceTime=%d", ms/1000)
			default:
				b.WriteString(":" + key + "='" + value + "'")
			}
		}
		r.Add(Kept, file, n, "QOS "+fields[name], "")
		each(fields[name], b.String(), n)
	}
	return nil
}
