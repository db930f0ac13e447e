package complete

import (
	"strings"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/slurmjson"
)

// ofOptions says by an option's long name what its value is, where commands agree. One whose metavar is a choice, such
// as on|off, or a name of files needs no row.
var ofOptions = map[string]getopt.Values{
	"account":        {Kind: getopt.Accounts, List: true},
	"accounts":       {Kind: getopt.Accounts, List: true},
	"clusters":       {Kind: getopt.Clusters},
	"constraint":     {Kind: getopt.Features},
	"prefer":         {Kind: getopt.Features},
	"dependency":     {Kind: getopt.Fixed, Words: dependencies},
	"exclude":        {Kind: getopt.Nodes, List: true},
	"nodelist":       {Kind: getopt.Nodes, List: true},
	"gres":           {Kind: getopt.Gres, List: true},
	"jobid":          {Kind: getopt.Jobs},
	"jobs":           {Kind: getopt.Jobs, List: true},
	"steps":          {Kind: getopt.Jobs, List: true},
	"why":            {Kind: getopt.Jobs, List: true},
	"kill-command":   {Words: signals},
	"licenses":       {Kind: getopt.Licenses, List: true},
	"mail-user":      {Kind: getopt.Users},
	"partition":      {Kind: getopt.Partitions, List: true},
	"qos":            {Kind: getopt.QOS, List: true},
	"reservation":    {Kind: getopt.Reservations},
	"wckey":          {Kind: getopt.WCKeys},
	"wckeys":         {Kind: getopt.WCKeys, List: true},
	"signal":         {Words: signals},
	"elastic-signal": {Words: signals},
	"uid":            {Kind: getopt.Users},
	"user":           {Kind: getopt.Users, List: true},
	"users":          {Kind: getopt.Users, List: true},
	"mail-type":      getopt.Fields(mailTypes...),
	"export":         getopt.Fields("ALL", "NONE"),
	"exclusive":      getopt.Fields("user"),
	"hint":           getopt.Fields("compute_bound", "memory_bound", "multithread", "nomultithread"),
	"cpu-bind": getopt.Fields("quiet", "verbose", "none", "rank", "cores", "threads", "sockets", "ldoms", "map_cpu:",
		"mask_cpu:"),
	"mem-bind": getopt.Fields("quiet", "verbose", "none", "rank", "local", "map_mem:", "mask_mem:"),
	"gpu-bind": getopt.Fields("verbose", "none", "closest", "single:", "map_gpu:", "mask_gpu:"),
	"distribution": {Words: getopt.Fields("block", "cyclic", "plane=", "arbitrary", "block:block", "block:cyclic",
		"cyclic:block", "cyclic:cyclic").Words},
	"json":           {Words: getopt.Fields(slurmjson.Versions()...).Words},
	"gpus":           {Kind: getopt.Gres},
	"wait-all-nodes": {Words: getopt.Fields("0", "1").Words},
	"requeue":        {Words: getopt.Fields("expedite").Words},
	"mpi":            {Words: getopt.Fields("none", "pmi2", "pmix").Words},
}

// free are the metavars of values that only the user knows: numbers, times, texts, formats.
const free = " n n[-m] n[@time] min-max min[-max] size seconds seconds[L|S] time limit text name names ids list " +
	"format fields keys letters indexes command KMGTP limits task=seconds s[:c[:t]] [type:]n group groups version flag " +
	"how states features reasons type types none value pool=nodes image path src:dst[:flags],... "

// choice gives the words of a metavar such as on|off, nil of any other.
func choice(metavar string) []string {
	words := strings.Split(metavar, "|")
	if len(words) < 2 || strings.ContainsAny(metavar, "[]-,:= ") {
		return nil
	}
	return words
}

// valuesOf gives what an option's value can be.
func valuesOf(p *getopt.Parser, o *getopt.Option, typed string) getopt.Values {
	if v, ok := p.ValuesOf(o); ok {
		return v
	}
	if i := strings.LastIndexByte(typed, ':'); o.Name == "dependency" && i >= 0 {
		return getopt.Values{Kind: getopt.Jobs, Head: i + 1}
	}
	if v, ok := ofOptions[o.Name]; ok {
		return v
	}
	switch o.Metavar {
	case "file", "file|-", "program":
		return getopt.Values{Kind: getopt.Files}
	case "dir", "bundle":
		return getopt.Values{Kind: getopt.Dirs}
	case "off":
		return getopt.Fields("off")
	case "hosts", "nodes":
		return getopt.Values{Kind: getopt.Nodes, List: true}
	}
	if words := choice(o.Metavar); words != nil {
		return getopt.Values{Words: getopt.Fields(words...).Words}
	}
	return getopt.Values{}
}

var dependencies = []getopt.Word{
	{Text: "after:", Help: "when the job has started"}, {Text: "afterany:", Help: "when the job has ended"},
	{Text: "aftercorr:", Help: "each task when that of the other array has ended well"},
	{Text: "afternotok:", Help: "when the job has failed"}, {Text: "afterok:", Help: "when the job has ended well"},
	{Text: "expand:", Help: "its nodes are for that running job"},
	{Text: "singleton", Help: "when no other job of this name and user is there"},
}

var mailTypes = []string{"BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT",
	"TIME_LIMIT_90", "TIME_LIMIT_80", "TIME_LIMIT_50", "ARRAY_TASKS", "NONE"}

var signals = getopt.Fields("HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "ALRM", "TERM", "CONT", "STOP", "TSTP",
	"XCPU", "URG", "WINCH").Words

// Unknown names the options of a command whose values this package can't say, and are not free.
func Unknown(p *getopt.Parser) []string {
	var out []string
	for o := range p.Options {
		if v := valuesOf(p, o, ""); o.Arg != getopt.None && v.Kind == getopt.Fixed && len(v.Words) == 0 &&
			o.Metavar != "" && !strings.Contains(free, " "+o.Metavar+" ") {
			out = append(out, "--"+o.Name+"="+o.Metavar)
		}
	}
	return out
}

// Wrong names the words that are offered and that their option refuses.
func Wrong(p *getopt.Parser) []string {
	var out []string
	for o := range p.Options {
		if o.Arg == getopt.None || o.Set == nil {
			continue
		}
		for _, w := range valuesOf(p, o, "").Words {
			if strings.HasSuffix(w.Text, ":") || strings.HasSuffix(w.Text, "=") {
				continue // unfinished
			}
			if err := o.Set(w.Text); err != nil {
				out = append(out, "--"+o.Name+"="+w.Text+": "+err.Error())
			}
		}
	}
	return out
}
