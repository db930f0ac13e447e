package conf

import "strings"

// Unset is gbatch's own statement, beside Include:
//
//	Include /etc/slurm/slurm.conf
//	Unset SlurmctldHost,StateSaveLocation
//	SlurmctldHost=here(127.0.0.1:6817)
//
// cancels the lines above for the named settings, as if those lines were not there. With it a file can include another
// one and replace some settings. Node, partition and set lines can't be unset.

// unset is a name in an Unset line.
type unset struct {
	key string
	at  pos
}

// unsetLine removes settings that have been read so far.
func (r *reader) unsetLine(rest string, at pos) {
	names := splitList(strings.Join(strings.Fields(rest), ","))
	if len(names) == 0 {
		r.probs.errorf(at, "write Unset SlurmctldHost", "Unset names no setting")
	}
	for _, name := range names {
		r.unset = append(r.unset, unset{name, at})
		for i := range r.out {
			s := &r.out[i]
			if len(s.pairs) > 0 && recordKey(s.pairs[0].key) == "" {
				s.pairs = dropKey(s.pairs, name)
			}
		}
	}
}

func dropKey(pairs []pair, name string) []pair {
	out := pairs[:0:0]
	for _, p := range pairs {
		if !strings.EqualFold(p.key, name) {
			out = append(out, p)
		}
	}
	return out
}

// checkUnset reports names in Unset lines that no setting has.
func (l *loader) checkUnset(list []unset) {
	for _, u := range list {
		if l.settings.byName[strings.ToLower(u.key)] == nil {
			hint := "see gbatch.conf(5) for the settings"
			if near := nearest(u.key, l.settings.names()); near != "" {
				hint = "write Unset " + near
			}
			l.probs.errorf(u.at, hint, "Unset: %s is not a setting", shown(u.key))
		}
	}
}
