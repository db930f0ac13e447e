package rest

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gbatch/internal/proto"
)

// published reads Slurm's specification of a version; false where the folder of them is not there.
func published(t *testing.T, ver string) (paths map[string]map[string]struct {
	OperationID string
	Parameters  []struct{ Name, In string }
}, ok bool) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "..", "shared", "openapi", "slurm-"+ver+".json.gz"))
	if err != nil {
		return nil, false
	}
	defer f.Close() //nolint:errcheck // only read
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	all := struct {
		Paths *map[string]map[string]struct {
			OperationID string
			Parameters  []struct{ Name, In string }
		}
	}{&paths}
	if err := json.NewDecoder(z).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return paths, true
}

// TestEveryOperation: each operation of Slurm's specification is served under its name, in each version whose
// specification is here, and nothing else is served below its paths.
func TestEveryOperation(t *testing.T) {
	all := operations()
	for _, ver := range versions {
		paths, ok := published(t, ver)
		if !ok {
			t.Logf("Slurm's specification of %s is not here", ver)
			continue
		}
		mine := map[string]string{}
		for i := range all {
			if o := &all[i]; o.is(ver) {
				mine[strings.ToLower(o.Method)+" "+o.in(ver)] = o.id(ver)
			}
		}
		for path, methods := range paths {
			for method, op := range methods {
				key := method + " " + path
				if mine[key] != op.OperationID {
					t.Errorf("%s: %s is Slurm's name, %q is served", key, op.OperationID, mine[key])
				}
				delete(mine, key)
			}
		}
		for key := range mine {
			if !slices.Contains(beyond, key) {
				t.Errorf("%s is not in Slurm's specification of %s", key, ver)
			}
		}
	}
}

// TestRightsComeFirst: each operation that changes something says what kind of request it makes, by which its user's
// rights are looked up before the body is read.
func TestRightsComeFirst(t *testing.T) {
	changesNothing := []string{"slurmdb_V_post_clusters", "slurmdb_V_delete_cluster", "slurmdb_V_post_tres",
		"slurmdb_V_post_wckeys", "slurmdb_V_delete_wckey", "util_V_post_hostnames", "util_V_post_hostlist"}
	for _, o := range operations() {
		row := proto.RequestOf(o.Asks)
		switch {
		case o.Method == get && o.Asks == 0, slices.Contains(changesNothing, o.Name) && o.Asks == 0:
		case row.Effect != proto.Changes:
			t.Errorf("%s makes requests of kind %d, %s", o.Name, o.Asks, row.Name)
		}
	}
}

// beyond are operations that later versions have, and that are served in earlier ones too.
var beyond []string
