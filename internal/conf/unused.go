package conf

// unusedKey is a key that is read into Config but not used by any daemon, with what to do instead. When a key gets an
// effect, remove it from this list.
type unusedKey struct{ name, instead string }

var unusedKeys = []unusedKey{
	{"MaxJobId", "remove it: numbers don't begin again, so that each names one job in accounting"},
	{"MessageTimeout", "remove it: requests wait 30 seconds for an answer, and a peer that is silent for 2 is given up"},
}

// unusedLineKeys are the same for NodeName and PartitionName lines.
var unusedLineKeys = []unusedKey{
	{"ExclusiveTopo", "remove it, or set OverSubscribe=EXCLUSIVE"},
}

// insteadOf gives what to do instead of setting a key without effect on a line; "" for other keys.
func insteadOf(name string) string {
	for _, u := range unusedLineKeys {
		if hasFold([]string{u.name}, name) {
			return u.instead
		}
	}
	return ""
}

// UnreadFile is a file of Slurm's that counts there as soon as it is beside slurm.conf, and that isn't read here.
type UnreadFile struct {
	Names []string
	Lost  bool // what it asks for is not done
	Why   string
}

// UnreadFiles are all there are.
func UnreadFiles() []UnreadFile {
	return []UnreadFile{
		{[]string{"plugstack.conf"}, true, "SPANK plugins aren't loaded; set what they set in TaskProlog or in " +
			"JobSubmitProgram"},
		{[]string{"acct_gather.conf", "ext_sensors.conf"}, true, "energy, interconnect and profile data aren't gathered"},
		{[]string{"burst_buffer.conf", "burst_buffer.lua"}, true, "there are no burst buffers"},
		{[]string{"helpers.conf", "knl_generic.conf", "knl_cray.conf"}, true,
			"features don't change by a plugin; write Features on the node line"},
		{[]string{"mpi.conf"}, false, "PMI is gnoded's own; see gbatch-mpi(7)"},
	}
}

// remarkUnread names those that are beside the main file.
func (l *loader) remarkUnread(src source, dir string) {
	for _, f := range UnreadFiles() {
		for _, name := range f.Names {
			sev := Note
			if f.Lost {
				sev = Warning
			}
			if file := src.join(dir, name); src.exists(file) {
				l.probs.add(pos{file: file}, sev, "", "%s is not read: %s", name, f.Why)
			}
		}
	}
}
