package migrate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/conf"
)

// others reads the files of Slurm that conf does not, and adds what they say to ours.
func (c *carry) others(dir string, out map[string]string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var more []string
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		if c.names[file] != "" {
			continue
		}
		switch e.Name() {
		case "slurmdbd.conf", "topology.yaml":
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if len(data) > conf.MaxFileBytes {
				return fmt.Errorf("%s is larger than %d MiB", file, conf.MaxFileBytes>>20)
			}
			if e.Name() == "slurmdbd.conf" {
				more = append(more, c.slurmdbd(file, string(data))...)
			} else {
				more = append(more, c.topologyYAML(file, data, out)...)
			}
			continue
		}
		if e.IsDir() {
			c.r.Add(Ignored, file, 0, "", "a directory: no file in it is read; scripts are run where they are")
			continue
		}
		known := false
		for _, o := range conf.UnreadFiles() {
			if slices.Contains(o.Names, e.Name()) {
				kind := Ignored
				if known = true; o.Lost {
					kind = Unsupported
				}
				c.r.Add(kind, file, 0, "", "%s", o.Why)
			}
		}
		for _, o := range otherFiles {
			if !known && slices.Contains(o.names, e.Name()) {
				known = true
				c.r.Add(o.kind, file, 0, "", "%s", o.why)
				break
			}
		}
		if !known {
			c.r.Add(Ignored, file, 0, "", "it is not named in slurm.conf and is none of Slurm's own")
		}
	}
	if len(more) > 0 {
		out[conf.MainFile] = strings.TrimRight(out[conf.MainFile], "\n") + "\n\n" + strings.Join(more, "\n") + "\n"
	}
	return nil
}

// otherFiles are Slurm's files that gbatch does not read, beside conf.UnreadFiles.
var otherFiles = []struct {
	names []string
	kind  Kind
	why   string
}{
	{[]string{"job_submit.lua"}, Person, "Lua is not run: write it again as a program for JobSubmitProgram=, " +
		"which reads and writes JSON; gbatch-hooks(7) has Lua's functions and fields in its words"},
	{[]string{"cli_filter.lua"}, Person, "Lua is not run: write it again as a program for CliFilterProgram=; see " +
		"gbatch-hooks(7)"},
	{[]string{"scrun.lua"}, Unsupported, "there is no scrun: jobs run in OCI bundles by --container, with oci.conf, " +
		"and in images by --container-image"},
	{[]string{"namespace.yaml"}, Unsupported, "write job_container.conf"},
	{[]string{"jwt_hs256.key", "jwt.key", "slurm.jwks", "slurm.key", "munge.key"}, Ignored,
		"keys aren't shared: daemons have certificates (gbatch cert), and scontrol token makes tokens"},
}

// dbdIgnored are keys of slurmdbd.conf that have no meaning here, by the reason.
var dbdIgnored = []struct {
	why  string
	keys []string
}{
	{"gdbd keeps its own database and needs no server", []string{"StorageType", "StorageHost", "StorageBackupHost",
		"StoragePort", "StorageUser", "StoragePass", "StorageLoc", "StorageParameters", "StoragePassScript"}},
	{"daemons prove themselves by the cluster's own certificates", []string{"AuthType", "AuthInfo", "AuthAltTypes",
		"AuthAltParameters", "TLSType", "TLSParameters", "HashPlugin"}},
	{"gdbd writes to DbdLogFile, or to stderr, which systemd keeps", []string{"DebugLevelSyslog", "DebugFlags",
		"LogTimeFormat"}},
	{"gdbd that root starts becomes SlurmUser of gbatch.conf", []string{"SlurmUser"}},
	{"no pid files are written", []string{"PidFile"}},
	{"a new cluster's QOS are those of its root account: gacctmgr modify account root set qos=", []string{"DefaultQOS"}},
	{"everything is built in", []string{"PluginDir", "CommunicationParameters", "Parameters", "MessageTimeout",
		"TCPTimeout", "CommitDelay", "MaxQueryTimeRange", "AllowNoDefAcct", "AllResourcesAbsolute", "PersistConnRCFlags"}},
	{"gdbd's address is that of its host", []string{"DbdAddr"}},
}

// slurmdbd gives lines for our main file.
func (c *carry) slurmdbd(file, text string) (more []string) {
	n := 0
	months := 0
	for line := range strings.SplitSeq(text, "\n") {
		n++
		if i := strings.IndexByte(line, '#'); i >= 0 {
			line = line[:i]
		}
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok {
			c.r.Add(Person, file, n, "", "%.60q is not key=value", line)
			continue
		}
		key, value = strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `"`)
		told := key + "=" + value
		if l := strings.ToLower(key); strings.Contains(l, "pass") {
			told = key // a secret
		}
		set := func(our string) {
			if c.settings[strings.ToLower(our)] {
				c.r.Add(Ignored, file, n, told, "slurm.conf sets %s", our)
				return
			}
			c.settings[strings.ToLower(our)] = true
			more = append(more, our+"="+quoted(value))
			c.r.Add(Translated, file, n, told, "%s=%s in %s", our, value, conf.MainFile)
		}
		lower := strings.ToLower(key)
		switch {
		case lower == "dbdhost":
			set("AccountingStorageHost")
		case lower == "dbdbackuphost":
			set("AccountingStorageBackupHost")
		case lower == "dbdport":
			set("AccountingStoragePort")
		case lower == "privatedata":
			set("PrivateData")
		case strings.HasPrefix(lower, "purge"):
			m := monthsOf(value)
			if lower == "purgejobafter" || months == 0 {
				months = m
			}
			c.r.Add(Unsupported, file, n, told, "gdbd keeps all records of a month together: start it with --keep-months=%d",
				max(1, m))
		case strings.HasPrefix(lower, "archive"):
			c.r.Add(Unsupported, file, n, told, "records aren't archived when they are deleted; gbatch backup save keeps them")
		case lower == "trackwckey":
			set("TrackWCKey")
		case lower == "logfile":
			set("DbdLogFile")
		case lower == "debuglevel":
			set("DbdDebug")
		case lower == "disablecoorddbd" && !asksNothing(value):
			c.r.Add(Unsupported, file, n, told, "coordinators may change their accounts; gacctmgr remove coordinator takes "+
				"that right from them")
		case lower == "disablecoorddbd":
			c.r.Add(Ignored, file, n, told, "as it is here")
		case lower == "trackslurmctlddown":
			c.r.Add(Unsupported, file, n, told, "gdbd does not count the time without a controller")
		default:
			c.ignoredOfDbd(file, n, key, told)
		}
	}
	if len(more) > 0 {
		more = append([]string{"# from slurmdbd.conf"}, more...)
	}
	return more
}

// asksNothing reports whether a value says no.
func asksNothing(v string) bool {
	return slices.Contains([]string{"", "0", "no", "false"}, strings.ToLower(v))
}

func (c *carry) ignoredOfDbd(file string, n int, key, told string) {
	for _, i := range dbdIgnored {
		for _, k := range i.keys {
			if strings.EqualFold(k, key) {
				c.r.Add(Ignored, file, n, told, "%s", i.why)
				return
			}
		}
	}
	c.r.Add(Person, file, n, told, "it is no key of slurmdbd.conf that is known here")
}

// monthsOf reads a span such as 12, 12months, 30days, 100hours as months, rounded up.
func monthsOf(value string) int {
	digits := strings.TrimRight(strings.ToLower(value), "abcdefghijklmnopqrstuvwxyz")
	n, err := strconv.Atoi(strings.TrimSpace(digits))
	if err != nil || n < 0 || n > 1<<20 {
		return 0
	}
	switch unit := strings.ToLower(strings.TrimSpace(value[len(digits):])); {
	case strings.HasPrefix(unit, "day"):
		n = (n + 29) / 30
	case strings.HasPrefix(unit, "hour"):
		n = (n + 719) / 720
	}
	return n
}
