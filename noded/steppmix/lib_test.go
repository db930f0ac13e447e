//go:build cgo && linux

package steppmix

import (
	"errors"
	"strings"
	"testing"

	"gbatch/internal/pmix"
)

// TestLibrary starts libpmix's server in this process, as far as it is installed.
func TestLibrary(t *testing.T) {
	s := &server{ranks: []int32{2, 3}, here: 1, plan: &pmix.Plan{Space: "gbatch.1.0.cafe", Job: "1.0",
		Nodes: []pmix.Node{{Name: "n1", Ranks: []int32{0, 1}}, {Name: "n2", Ranks: []int32{2, 3}}}}, dir: t.TempDir()}
	if err := s.start(); errors.Is(err, errNoLibrary) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	env, err := s.variables(3)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(env, "\n") + "\n"
	for _, want := range []string{"PMIX_NAMESPACE=gbatch.1.0.cafe\n", "PMIX_RANK=3\n", "PMIX_SERVER_URI"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
