package ask

import "strings"

// resvKeys are the keys of reservations, each with the fewest letters that stand for it, as in scontrol.
var resvKeys = []struct {
	name  string
	least int
}{
	{"StartTime", 1}, {"EndTime", 1}, {"Duration", 1}, {"Nodes", 5}, {"NodeList", 5}, {"NodeCnt", 5}, {"NodeCount", 5},
	{"CoreCnt", 5}, {"CoreCount", 5}, {"TRES", 1}, {"TRESPerNode", 5}, {"Licenses", 2}, {"PartitionName", 3},
	{"Features", 2}, {"Users", 1}, {"Accounts", 1}, {"Groups", 1}, {"Flags", 2}, {"MaxStartDelay", 3}, {"Skip", 2},
	{"BurstBuffer", 2}, {"Watts", 1},
}

// ResvKey gives the whole name of a reservation's key, which may be shortened and end with + or -; a key that is none
// it gives as it is.
func ResvKey(key string) string {
	word := strings.ToLower(strings.TrimRight(key, "+-"))
	for _, k := range resvKeys {
		if len(word) >= k.least && strings.HasPrefix(strings.ToLower(k.name), word) {
			return k.name + key[len(word):]
		}
	}
	return key
}
