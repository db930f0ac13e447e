package proto

import (
	"strings"
	"testing"
)

func TestCheckMIGLayout(t *testing.T) {
	for _, good := range []string{"training", "inference", "balanced", "off", "1g.10gb", "1g.10gb+me,3g.40gb",
		"1g.5gb+me.all", "2g.35gb-me"} {
		if err := CheckMIGLayout(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "fast", "1g.10gb,", "19", "-C", "1g.10gb -C", "1g.10gb+", "1g.10gb,off", "1c.3g.40gb",
		"12345g.1gb", "1g.10gb;x",
		"1g.10gb+" + strings.Repeat("m", 16), strings.Repeat("1g.10gb,", maxProfiles) + "1g.10gb"} {
		if CheckMIGLayout(bad) == nil {
			t.Errorf("%q passes", bad)
		}
	}
}
