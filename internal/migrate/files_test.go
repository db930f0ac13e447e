package migrate

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/internal/conf"
	"gbatch/internal/golden"
)

// TestFiles carries over a directory with most of what there is, and compares the report and every file.
func TestFiles(t *testing.T) {
	work := t.TempDir()
	r := &Report{}
	f, err := ReadFiles(filepath.Join("testdata", "slurm"), work, r)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, i := range r.Items {
		if i.Kind != Kept {
			fmt.Fprintln(&b, i)
		}
	}
	fmt.Fprintln(&b, r.Sum())
	for _, name := range f.Names() {
		fmt.Fprintf(&b, "\n==> %s <==\n%s", name, f.Text[name])
	}
	golden.Compare(t, filepath.Join("testdata", "files.golden"), b.Bytes())
	if _, problems := conf.Load(work); conf.HasErrors(problems) {
		t.Error("what was written has errors")
	}
	if !r.Lost() {
		t.Error("nothing was lost")
	}
	if strings.Contains(b.String(), "secret") {
		t.Error("the report has a password")
	}
}

// TestFaultyTopologies: of a topology.yaml with something unknown the default topology becomes a topology.conf, and
// partitions name no topology any more.
func TestFaultyTopologies(t *testing.T) {
	dir, work := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"slurm.conf": "ClusterName=c\nSlurmctldHost=ctl\nNodeName=n[1-4] CPUs=2\nPartitionName=p Nodes=ALL Default=YES\n" +
			"PartitionName=q Nodes=ALL Topology=loop\n",
		"topology.yaml": "- topology: nvl\n  block:\n    block_sizes: [2, 4]\n    blocks:\n    - {block: a, nodes: " +
			"'n[1-2]'}\n" +
			"    - {block: b, nodes: 'n[3-4]'}\n- topology: loop\n  ring: {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := &Report{}
	f, err := ReadFiles(dir, work, r)
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Text["topology.conf"]; !strings.Contains(got, "BlockName=b Nodes=n[3-4]\nBlockSizes=2,4\n") {
		t.Errorf("%s", got)
	}
	if got := f.Text["gbatch.conf"]; !strings.Contains(got, "\nPartitionName=q Nodes=ALL\n") {
		t.Errorf("%s", got)
	}
	c, problems := conf.Load(work)
	if c == nil || len(c.Model().Blocks.List) != 2 {
		t.Errorf("%v", problems)
	}
	var told string
	for _, i := range r.Items {
		told += fmt.Sprintln(i)
	}
	for _, want := range []string{"topology.yaml:8: to be done: topologies of the kind ring are not known here",
		"not supported: topology loop: only the default one, nvl, is carried over"} {
		if !strings.Contains(told, want) {
			t.Errorf("the report does not say %q:\n%s", want, told)
		}
	}
}

// TestEveryKeyIsReported: each key=value of the input is in the report.
func TestEveryKeyIsReported(t *testing.T) {
	r := &Report{}
	dir := filepath.Join("testdata", "slurm")
	if _, err := ReadFiles(dir, t.TempDir(), r); err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, i := range r.Items {
		key, _, _ := strings.Cut(i.Key, "=")
		told[fmt.Sprintf("%s %s", filepath.Base(i.File), strings.ToLower(key))] = true
	}
	statements, _, _ := conf.Survey(filepath.Join(dir, "slurm.conf"))
	for _, s := range statements {
		for _, p := range s.Pairs {
			if !told[fmt.Sprintf("%s %s", filepath.Base(s.File), strings.ToLower(p.Key))] {
				t.Errorf("%s:%d: %s is not in the report", s.File, s.Line, p.Key)
			}
		}
	}
}

// FuzzFiles: whatever a slurm.conf has in it, what is written is valid, or there is an error.
func FuzzFiles(f *testing.F) {
	f.Add(file(f, "slurm/slurm.conf"))
	f.Add("ClusterName=x\nNodeName=a Foo=1 CPUs=\nInclude slurm.conf\nA b c\n")
	f.Fuzz(func(t *testing.T, text string) {
		dir, work := t.TempDir(), t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "slurm.conf"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadFiles(dir, work, &Report{}); err != nil {
			return
		}
		if c, problems := conf.Load(work); c == nil {
			t.Fatal(problems)
		}
	})
}

func TestMonths(t *testing.T) {
	for text, want := range map[string]int{"12": 12, "12months": 12, "30days": 1, "31day": 2, "1441hours": 3, "x": 0} {
		if got := monthsOf(text); got != want {
			t.Errorf("%s: %d months, want %d", text, got, want)
		}
	}
}
