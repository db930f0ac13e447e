package gpu

import (
	"strings"
	"testing"
)

// TestLayout has the profiles that NVIDIA's MIG user guide lists for these products.
func TestLayout(t *testing.T) {
	for _, c := range []struct {
		typ     string
		memMiB  int64
		layout  string
		offered string
		want    string // or the error
	}{
		{"h100", 81559, "training", "", "3g.40gb,3g.40gb"},
		{"h100", 81559, "inference", "", "1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb,1g.10gb"},
		{"h100", 81559, "balanced", "", "3g.40gb,2g.20gb,1g.10gb,1g.10gb"},
		{"h100", 81559, "off", "", ""},
		{"a100", 40960, "balanced", "", "3g.20gb,2g.10gb,1g.5gb,1g.5gb"},
		{"h100", 95830, "balanced", "", "3g.47gb,2g.24gb,1g.12gb,1g.12gb"},
		{"h200", 143771, "training", "", "3g.71gb,3g.71gb"},
		{"h200", 143771, "1g.18gb,1g.35gb,3g.71gb", "", "1g.18gb,1g.35gb,3g.71gb"},
		{"b200", 183359, "balanced", "", "3g.90gb,2g.45gb,1g.23gb,1g.23gb"},
		{"a30", 24576, "training", "", "2g.12gb,2g.12gb"},
		{"a30", 24576, "inference", "", "1g.6gb,1g.6gb,1g.6gb,1g.6gb"},
		{"a30", 24576, "balanced", "", "2g.12gb,1g.6gb,1g.6gb"},
		{"rtxpro6000", 97887, "training", "", "2g.48gb,2g.48gb"},
		{"h100", 81559, "1g.10gb+me,4g.40gb", "", "1g.10gb+me,4g.40gb"},
		{"h100", 81559, "1g.5gb", "", "GPU 0 (h100, 80 GiB) has no profile 1g.5gb; it has 1g.10gb, 1g.20gb, 2g.20gb, " +
			"3g.40gb, 4g.40gb, 7g.80gb"},
		{"h100", 81559, "1g.20gb", "1g.10gb,2g.20gb", "GPU 0 (h100, 80 GiB) has no profile 1g.20gb; it has 1g.10gb, 2g.20gb"},
		{"h100", 81559, "1g.10gb+me", "1g.10gb", "GPU 0 (h100, 80 GiB) has no profile 1g.10gb+me; it has 1g.10gb"},
		{"h100", 81559, "1g.11gb", "1g.11gb", "1g.11gb"}, // the driver knows best
		{"h100", 81559, "7g.80gb,1g.10gb", "",
			"GPU 0 (h100, 80 GiB) has no room for 7g.80gb,1g.10gb: they need 8 of 7 slices and 9 of 8 parts of its memory"},
		{"h100", 81559, "3g.40gb,3g.40gb,1g.10gb", "",
			"GPU 0 (h100, 80 GiB) has no room for 3g.40gb,3g.40gb,1g.10gb: they need 7 of 7 slices and 9 of 8 parts of its " +
				"memory"},
		{"x", 0, "balanced", "", "GPU 0 (GPU-x): its memory is not known, so layout=balanced has no sizes; list profiles"},
		{"x", 0, "2g.7gb", "", "2g.7gb"},
	} {
		d := &Device{Type: c.typ, UUID: "GPU-x", MemMiB: c.memMiB}
		var offered []string
		if c.offered != "" {
			offered = strings.Split(c.offered, ",")
		}
		list, err := Layout(d, c.layout, offered)
		got := strings.Join(list, ",")
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s, %d MiB, layout=%s, offered %q:\n got %s\nwant %s", c.typ, c.memMiB, c.layout, c.offered, got, c.want)
		}
	}
}

func TestOfferedProfiles(t *testing.T) {
	const text = `+-------------------------------------------------------------------------------+
| GPU instance profiles:                                                        |
| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |
|                                Free/Total   GiB              CE    JPEG  OFA  |
|===============================================================================|
|   0  MIG 1g.10gb         19     7/7        9.75       No     16     1     0   |
|                                                               1     1     0   |
+-------------------------------------------------------------------------------+
|   0  MIG 1g.10gb+me      20     1/1        9.75       No     16     1     0   |
|   0  MIG 3g.40gb          9     2/2        39.38      No     60     3     0   |
|   0  MIG 3g.40gb-me       9     2/2        39.38      No     60     3     0   |
|   0  MIG 1g.10gb         19     7/7        9.75       No     16     1     0   |`
	if got := strings.Join(OfferedProfiles(text), " "); got != "1g.10gb 1g.10gb+me 3g.40gb 3g.40gb-me" {
		t.Errorf("got %s", got)
	}
}
