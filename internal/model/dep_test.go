package model

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestParseDeps(t *testing.T) {
	for _, c := range []struct {
		text string
		want string
	}{
		{"", "[] any=false"}, {"none", "[] any=false"}, {"(null)", "[] any=false"},
		{"afterok:12", "[afterok:12] any=false"},
		{"AfterOK:12", "[afterok:12] any=false"},
		{"afterok:12:13", "[afterok:12 afterok:13] any=false"},
		{"afterok:12,afterany:9", "[afterok:12 afterany:9] any=false"},
		{"afterok:12?afternotok:9", "[afterok:12 afternotok:9] any=true"},
		{"afterok:12_3", "[afterok:12_3] any=false"},
		{"afterok:12_*", "[afterok:12] any=false"},
		{"after:12+5:13", "[after:12+300s after:13] any=false"},
		{"aftercorr:12,singleton", "[aftercorr:12 singleton] any=false"},
		{"afterburstbuffer:12", "[afterany:12] any=false"},
		{"12", "[afterany:12] any=false"},
		{"12:13", "[afterany:12 afterany:13] any=false"},
		{"afterok:12,13", "[afterok:12 afterok:13] any=false"},
		{"afterok:1:+5", "[afterok:1 afterok:5] any=false"},
		{"singleton,13", "[singleton afterany:13] any=false"},
	} {
		deps, any, err := ParseDeps(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		var words []string
		for _, d := range deps {
			w := d.Kind.String()
			if d.Job != 0 {
				w += fmt.Sprintf(":%d", d.Job)
			}
			if d.Task != NoTask {
				w += fmt.Sprintf("_%d", d.Task)
			}
			if d.DelayS != 0 {
				w += fmt.Sprintf("+%ds", d.DelayS)
			}
			words = append(words, w)
		}
		if got := fmt.Sprintf("%v any=%v", words, any); got != c.want {
			t.Errorf("%s: got %s, want %s", c.text, got, c.want)
		}
	}
	for text, want := range map[string]string{
		"afterok":            "needs a job",
		"afterok:":           "'' is not a job id",
		"afterok:0":          "'0' is not a job id",
		"afterok:-1":         "'-1' is not a job id",
		"afterok:4294967296": "is not a job id",
		"afterok:1_x":        "is not a task",
		"afterok:1_-1":       "is not a task",
		"afterok:1+5":        "only after:JOBID takes",
		"after:1+x":          "is not a number of minutes",
		"singleton:4":        "singleton stands alone",
		"later:5":            "'later' is not a kind",
		"afterok:1,":         "'' is not a kind",
		"afterok:1,after:2?": "not both",
		"afterok:+":          "is not a job id",
		"expand:":            "'' is not a job id",
	} {
		if _, _, err := ParseDeps(text); !errors.Is(err, ErrDependency) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	for k := DepAfter; k < numDepKinds; k++ {
		if got, ok := ParseDepKind(k.String()); !ok || got != k {
			t.Errorf("%s reads as %s", k, got)
		}
	}
}

func FuzzParseDeps(f *testing.F) {
	for _, s := range []string{"afterok:12:13,afterany:9", "after:12+5?12", "singleton", "aftercorr:1_2", "1,2,3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		deps, _, err := ParseDeps(text)
		if err != nil && deps != nil {
			t.Fatal("an error, and a result")
		}
		for _, d := range deps {
			if d.Kind == 0 || d.Kind >= numDepKinds || (d.Job == 0) != (d.Kind == DepSingleton) || d.DelayS < 0 ||
				d.Task < NoTask {
				t.Fatalf("%q gives %+v", text, d)
			}
		}
	})
}
