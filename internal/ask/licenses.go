package ask

import (
	"slices"
	"strings"

	"gbatch/internal/model"
	"gbatch/internal/walltime"
)

// ParseLicenses reads name[:count] (or name*count) joined with , or ; (all of them) or with | (one of them); "" asks
// for none.
func ParseLicenses(v string) (list []model.LicenseCount, either bool, err error) {
	either = strings.Contains(v, "|")
	if either && strings.ContainsAny(v, ",;") {
		return nil, false, refuse(License, "'%s': join them either with , (all of them) or with | (one of them)", v)
	}
	for _, word := range splitList(v, ",;|") {
		name, count, counted := strings.Cut(word, ":")
		if !counted {
			name, count, counted = strings.Cut(word, "*")
		}
		l := model.LicenseCount{Name: name, Count: 1}
		if counted {
			if l.Count, err = walltime.ParseCount(count); err != nil {
				l.Count = 0
			}
		}
		switch {
		case name == "" || l.Count < 1 || l.Count > model.MaxFeatureCount:
			return nil, false, refuse(License, "'%s': write NAME or NAME:COUNT, such as matlab:2", v)
		case len(list) == model.MaxLicenses:
			return nil, false, refuse(License, "'%s': more than %d licenses", v, model.MaxLicenses)
		case slices.ContainsFunc(list, func(o model.LicenseCount) bool { return o.Name == name }):
			return nil, false, refuse(License, "'%s': %s stands twice", v, name)
		}
		list = append(list, l)
	}
	return list, either, nil
}

// LicensesText writes licenses as ParseLicenses reads them.
func LicensesText(list []model.LicenseCount, either bool) string {
	var out []string
	for _, l := range list {
		out = append(out, l.Name+":"+itoa(l.Count))
	}
	if either {
		return strings.Join(out, "|")
	}
	return strings.Join(out, ",")
}
