package ctld

import (
	"bytes"
	"encoding/json"
	"testing"

	"gbatch/internal/model"
	"gbatch/internal/snapfile"
	"gbatch/internal/state"
)

// TestStateAsJSON: the state for people is one JSON object, with lists that are empty or not.
func TestStateAsJSON(t *testing.T) {
	st := state.New()
	for range 2 {
		var b bytes.Buffer
		if err := writeJSON(&b, snapfile.Header{Cluster: "c"}, st.View()); err != nil {
			t.Fatal(err)
		}
		var all struct {
			Snapshot snapfile.Header
			Jobs     []struct {
				ID    model.JobID
				State string
			}
		}
		if err := json.Unmarshal(b.Bytes(), &all); err != nil {
			t.Fatalf("%v in\n%s", err, b.Bytes())
		}
		n := st.View().JobCount()
		if len(all.Jobs) != n || n > 0 && (all.Jobs[1].ID != 2 || all.Jobs[1].State != "PENDING") {
			t.Errorf("%d jobs as %+v", n, all.Jobs)
		}
		st.Apply(state.Command{At: 1000, Body: &state.SetConfig{Config: &model.Config{Cluster: "c",
			Partitions: []*model.Partition{{Name: "p"}}}}})
		for range 2 {
			st.Apply(state.Command{At: 1000, Body: &state.Submit{Spec: &model.Spec{Name: "j", Partitions: []string{"p"}}}})
		}
	}
}
