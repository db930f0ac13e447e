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
