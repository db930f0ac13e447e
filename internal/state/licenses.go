package state

import (
	"fmt"
	"maps"
	"slices"

	"gbatch/internal/model"
)

// Licenses belong to the whole cluster. The number in use is derived from the jobs that hold them.

// LicensesInUse gives how many of a license running jobs hold.
func (v *View) LicensesInUse(name string) int64 { return v.licenses[name] }

// licensed checks that licenses exist and are free.
func (s *State) licensed(want []model.LicenseCount) bool {
	for i, l := range want {
		k := slices.IndexFunc(s.cfg.Licenses, func(c model.LicenseCount) bool { return c.Name == l.Name })
		twice := slices.ContainsFunc(want[:i], func(o model.LicenseCount) bool { return o.Name == l.Name })
		if k < 0 || twice || l.Count < 1 || s.licenses[l.Name] > s.cfg.Licenses[k].Count-l.Count {
			return false
		}
	}
	return true
}

// countLicenses updates the counts when a job's record changes from old to j.
func (s *State) countLicenses(old, j *model.Job) {
	was, is := licensesOf(old), licensesOf(j)
	if slices.Equal(was, is) {
		return
	}
	next := maps.Clone(s.licenses)
	if next == nil {
		next = map[string]int64{}
	}
	for _, l := range was {
		next[l.Name] -= l.Count
		if next[l.Name] == 0 {
			delete(next, l.Name)
		}
	}
	for _, l := range is {
		next[l.Name] += l.Count
	}
	s.licenses = next
}

func licensesOf(j *model.Job) []model.LicenseCount {
	if j == nil || j.Run == nil || !j.State.HasResources() {
		return nil
	}
	return j.Run.Licenses
}

func licenseLines(used map[string]int64) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(used)) {
		out = append(out, fmt.Sprintf("%s %d", name, used[name]))
	}
	return out
}
