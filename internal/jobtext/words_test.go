package jobtext

import (
	"testing"

	"gbatch/internal/model"
)

// TestTasksText has what Slurm prints for these arrays.
func TestTasksText(t *testing.T) {
	for asked, want := range map[string]string{
		"5":                    "5",
		"0-3":                  "0-3",
		"0-100:50":             "0,50,100",
		"1,5,9,13":             "1,5,9,13",
		"1-11:2":               "1,3,5,7,9,11",
		"1-12:3":               "1,4,7,10",
		"1-13:2":               "1-13:2",
		"1-13:3":               "1,4,7,10,13",
		"1-300:3":              "1-298:3",
		"2,4,6,8,10,12,14":     "2-14:2",
		"1-23:2,30,31":         "1,3,5,7,9,11,13,15,17,19,21,23,30-31",
		"1-3,7-9,11-20,30":     "1-3,7-9,11-20,30",
		"0-100000:2,7":         "0-6:2,7-8,10-100000:2",
		"1,2,3,4,5,6,7,8,9,10": "1-10",
	} {
		set, _, err := model.ParseTaskSet(asked, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if got := TasksText(set); got != want {
			t.Errorf("%s: %s, want %s", asked, got, want)
		}
	}
}
