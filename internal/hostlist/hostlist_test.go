package hostlist

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestExpand(t *testing.T) {
	for _, c := range []struct{ expr, want string }{
		{"", ""},
		{",a,,b,", "a b"},
		{" a , b ", "a b"},
		{"a b\tc\nd", "a b c d"},
		{"host", "host"},
		{"n[1-3,5]", "n1 n2 n3 n5"},
		{"n[001-003],n[1-2]", "n001 n002 n003 n1 n2"},
		{"n[01-3]", "n01 n02 n03"},
		{"n[1-03]", "n1 n2 n3"},
		{"n[08-11]", "n08 n09 n10 n11"},
		{"n[98-101]", "n98 n99 n100 n101"},
		{"n0[1-2]", "n01 n02"},
		{"n[1-2]x[1-2]", "n1x1 n1x2 n2x1 n2x2"},
		{"n[1-2][3-4]", "n13 n14 n23 n24"},
		{"n[1-2]-ib", "n1-ib n2-ib"},
		{"[1-3]", "1 2 3"},
		{"n[1-3,2]", "n1 n2 n3 n2"},
		{"n99999999999999999999", "n99999999999999999999"},
		{"gpu-node[01-02,07],login", "gpu-node01 gpu-node02 gpu-node07 login"},
		{"ä[1-2]", "ä1 ä2"},
	} {
		got, err := Expand(c.expr)
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("Expand(%q) = %q, %v; want %q", c.expr, got, err, c.want)
		}
		n, err := Count(c.expr)
		if err != nil || n != len(got) {
			t.Errorf("Count(%q) = %d, %v; want %d", c.expr, n, err, len(got))
		}
	}
}

func TestExpandErrors(t *testing.T) {
	for _, c := range []struct {
		expr string
		pos  int
		text string
	}{
		{"n[1-4", 1, `"n[1-4" at character 2: "[" is never closed`},
		{"a,n[", 3, "never closed"},
		{"n[1-", 1, "never closed"},
		{"n]", 1, `"]" without "["`},
		{"n[]", 2, "a number is expected here"},
		{"n[1-]", 4, "a number is expected here"},
		{"n[1,]", 4, "a number is expected here"},
		{"n[a]", 2, "a number is expected here, not 'a'"},
		{"n[3-1]", 2, "runs backwards; write 1-3"},
		{"n[1-4:2]", 5, "':' inside a bracket"},
		{"n[[1-2]]", 2, "a number is expected"},
		{"n[1 - 3]", 3, "inside a bracket"},
		{"n[1-70000]", 0, "more than 65536 hosts"},
		{"a,n[1-300]x[1-300]", 2, "more than 65536 hosts"},
		{"n[1-9999999999999999999]", 4, "more than 18 digits"},
		{"n\x00", 1, "control character 0x00"},
		{"n[1][1][1][1][1][1][1][1][1]", 25, "more than 8 brackets"},
		{strings.Repeat("x", MaxExprBytes+1), MaxExprBytes, "longer than"},
	} {
		_, err := Expand(c.expr)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("Expand(%.40q): no *Error but %v", c.expr, err)
			continue
		}
		if e.Pos != c.pos || !strings.Contains(e.Error(), c.text) {
			t.Errorf("Expand(%.40q): position %d, %q; want position %d, %q", c.expr, e.Pos, e, c.pos, c.text)
		}
		if len(e.Error()) > 400 {
			t.Errorf("Expand(%.40q): the error has %d bytes", c.expr, len(e.Error()))
		}
	}
}

func TestCompress(t *testing.T) {
	for _, c := range []struct{ hosts, canonical, inOrder, sorted string }{
		{"", "", "", ""},
		{"a1", "a1", "a1", "a1"},
		{"a1 a2 a3", "a[1-3]", "a[1-3]", "a[1-3]"},
		{"a3 a1 a2", "a[1-3]", "a[3,1-2]", "a[1-3]"},
		{"a1 b1 a2 b2", "a[1-2],b[1-2]", "a1,b1,a2,b2", "a[1-2],b[1-2]"},
		{"b1 a1", "b1,a1", "b1,a1", "a1,b1"},
		{"n001 n002 n003 n1 n2", "n[1-2,001-003]", "n[001-003,1-2]", "n[1-2,001-003]"},
		{"n001 n2 n003", "n[2,001,003]", "n[001,2,003]", "n[2,001,003]"},
		{"n9 n10 n11", "n[9-11]", "n[9-11]", "n[9-11]"},
		{"n09 n10", "n[09-10]", "n[09-10]", "n[09-10]"},
		{"n1-ib n2-ib", "n1-ib,n2-ib", "n1-ib,n2-ib", "n1-ib,n2-ib"},
		{"r1n1 r1n2 r2n1 r2n2", "r1n[1-2],r2n[1-2]", "r1n[1-2],r2n[1-2]", "r1n[1-2],r2n[1-2]"},
		{"a a1 a", "a,a1", "a,a1,a", "a,a,a1"},
		{"n1 n1 n1", "n1", "n[1,1,1]", "n[1,1,1]"},
		{"n1 n2 n3 n2", "n[1-3]", "n[1-3,2]", "n[1-2,2-3]"},
		{"n2 n1 n3 m1 n4", "n[1-4],m1", "n[2,1,3],m1,n4", "m1,n[1-4]"},
		{"n8 n9 n10 n08", "n[8-10,08]", "n[8-10,08]", "n[8-10,08]"},
		{"n098 n099 n100 n1000 n999", "n[098-100,999-1000]", "n[098-100,1000,999]", "n[098-100,999-1000]"},
		{"1 2 3", "[1-3]", "[1-3]", "[1-3]"},
		{"n0 n1 n00", "n[0-1,00]", "n[0-1,00]", "n[0-1,00]"},
		{"n18446744073709551615 n18446744073709551616", "n18[446744073709551615-446744073709551616]",
			"n18[446744073709551615-446744073709551616]", "n18[446744073709551615-446744073709551616]"},
	} {
		hosts := strings.Fields(c.hosts)
		before := slices.Clone(hosts)
		if got := Compress(hosts); got != c.canonical {
			t.Errorf("Compress(%s) = %s; want %s", c.hosts, got, c.canonical)
		}
		if got := CompressInOrder(hosts); got != c.inOrder {
			t.Errorf("CompressInOrder(%s) = %s; want %s", c.hosts, got, c.inOrder)
		}
		if got := CompressSorted(hosts); got != c.sorted {
			t.Errorf("CompressSorted(%s) = %s; want %s", c.hosts, got, c.sorted)
		}
		if !slices.Equal(before, hosts) {
			t.Errorf("the argument %v became %v", before, hosts)
		}
	}
}

func TestContains(t *testing.T) {
	for _, c := range []struct {
		expr, host string
		want       bool
	}{
		{"n[1-3]", "n2", true},
		{"n[1-3]", "n02", false},
		{"n[01-03]", "n02", true},
		{"n[01-03]", "n2", false},
		{"n[08-120]", "n100", true},
		{"n[1-2][3-4]", "n13", true},
		{"n[1-13][3-4]", "n133", true},
		{"n[1-2]x", "n1", false},
		{"a,b", "b", true},
		{"", "", false},
		{"n[1-2]", "n", false},
	} {
		if got, err := Contains(c.expr, c.host); err != nil || got != c.want {
			t.Errorf("Contains(%q, %q) = %v, %v", c.expr, c.host, got, err)
		}
	}
	if _, err := Contains("n[", "n1"); err == nil {
		t.Error("a broken expression is no error")
	}
}

func TestIndexes(t *testing.T) {
	for _, c := range []struct {
		list string
		want []int
		text string
	}{
		{"", nil, ""},
		{"0", []int{0}, "0"},
		{"0-3,7", []int{0, 1, 2, 3, 7}, "0-3,7"},
		{"7,0-3,2", []int{0, 1, 2, 3, 7}, "0-3,7"},
		{" 1 - 2 , 4", []int{1, 2, 4}, "1-2,4"},
		{"5,6", []int{5, 6}, "5-6"},
	} {
		got, err := ParseIndexes(c.list)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("ParseIndexes(%q) = %v, %v; want %v", c.list, got, err, c.want)
		}
		if text := FormatIndexes(got); text != c.text {
			t.Errorf("FormatIndexes(%v) = %q; want %q", got, text, c.text)
		}
	}
	for _, c := range []struct {
		list string
		pos  int
		text string
	}{
		{"1,,2", 2, "a number is missing"},
		{"-1", 0, "a number is missing"},
		{"3-1", 0, "runs backwards"},
		{"0-3:2", 2, `"3:2" is not a number`},
		{"x", 0, `"x" is not a number`},
		{"4000001", 0, "above 4000000"},
		{"0-4000000", 0, "more than 1048576 indexes"},
		{"99999999999999999999999", 0, "above 4000000"},
	} {
		_, err := ParseIndexes(c.list)
		var e *Error
		if !errors.As(err, &e) || e.Pos != c.pos || !strings.Contains(e.Error(), c.text) {
			t.Errorf("ParseIndexes(%q): %v; want position %d, %q", c.list, err, c.pos, c.text)
		}
	}
}

// TestAgainstSlurm compares with the real scontrol where it is installed; its
// goldens above were taken from Slurm 22.05.8. Names whose bracket follows a
// digit (n0[1-3]) are left out: Slurm remembers how they were written and
// prints n0[1-3] again, we see names only and print n[01-03].
func TestAgainstSlurm(t *testing.T) {
	scontrol, err := exec.LookPath("scontrol")
	if err != nil {
		t.Skip("no scontrol here; the tables hold what it printed")
	}
	conf := t.TempDir() + "/slurm.conf"
	if err := os.WriteFile(conf, []byte("ClusterName=x\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=n1\n"),
		0o644); err != nil {
		t.Fatal(err)
	}
	show := func(what, expr string) (string, bool) {
		cmd := exec.Command(scontrol, "show", what, expr)
		cmd.Env = append(os.Environ(), "SLURM_CONF="+conf)
		out, err := cmd.Output()
		return strings.TrimSpace(string(out)), err == nil && !strings.Contains(string(out), "Invalid")
	}
	if _, ok := show("hostnames", "n1"); !ok {
		t.Skip("scontrol is there but is not Slurm's")
	}
	for _, expr := range []string{
		"a3,a1,a2", "a1,b1,a2,b2", "n[001-003],n[1-2]", "n001,n2,n003", "n[1-2]x[1-2]", "n[08-11]",
		"a,a1,a", "n1,n1,n1", "n[1-3,2]", "n2,n1,n3,m1,n4", "n8,n9,n10,n08", "n[1-03]", "1,2,3",
	} {
		hosts, err := Expand(expr)
		if err != nil {
			t.Errorf("Expand(%q): %v", expr, err)
			continue
		}
		for what, got := range map[string]string{
			"hostnames":      strings.Join(hosts, "\n"),
			"hostlist":       CompressInOrder(hosts),
			"hostlistsorted": CompressSorted(hosts),
		} {
			if want, ok := show(what, expr); !ok || got != want {
				t.Errorf("show %s %q: we say %q, Slurm %q", what, expr, got, want)
			}
		}
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"n[1-3,5]", "n[001-003],n[1-2]", "r[1-2]n[08-11]-ib", "a,,b", "n[", "[0-9]", "n[1-2][3-4]",
		"x01x2", "n99999999999999999999"} {
		f.Add(s, "n1")
	}
	f.Fuzz(func(t *testing.T, expr, other string) {
		hosts, err := Expand(expr)
		if err != nil {
			if _, ok := err.(*Error); !ok {
				t.Fatalf("%T is no *Error", err)
			}
			return
		}
		if len(hosts) > MaxHosts {
			t.Fatalf("%d hosts", len(hosts))
		}
		again, err := Expand(CompressInOrder(hosts))
		if err != nil || !slices.Equal(again, hosts) {
			t.Fatalf("%q in order: %q, %v", expr, CompressInOrder(hosts), err)
		}
		sorted, err := Expand(CompressSorted(hosts))
		if err != nil || !slices.Equal(slices.Sorted(slices.Values(sorted)), slices.Sorted(slices.Values(hosts))) {
			t.Fatalf("%q sorted: %q, %v", expr, CompressSorted(hosts), err)
		}
		set, err := Expand(Compress(hosts))
		if err != nil || !slices.Equal(slices.Sorted(slices.Values(set)),
			slices.Compact(slices.Sorted(slices.Values(hosts)))) {
			t.Fatalf("%q canonical: %q, %v", expr, Compress(hosts), err)
		}
		if c := Compress(hosts); Compress(set) != c {
			t.Fatalf("%q: canonical %q becomes %q", expr, c, Compress(set))
		}
		probe := append([]string{other}, hosts[:min(len(hosts), 50)]...)
		for _, h := range probe {
			got, err := Contains(expr, h)
			if err != nil || got != slices.Contains(hosts, h) {
				t.Fatalf("Contains(%q, %q) = %v, %v", expr, h, got, err)
			}
		}
	})
}

func FuzzParseIndexes(f *testing.F) {
	for _, s := range []string{"0-3,7", "", "1", " 1 - 2 ", "x", "9-1", "4000001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		got, err := ParseIndexes(list)
		if err != nil {
			return
		}
		again, err := ParseIndexes(FormatIndexes(got))
		if err != nil || !slices.Equal(again, got) {
			t.Fatalf("%q: %v then %v, %v", list, got, again, err)
		}
	})
}

func BenchmarkExpand10000(b *testing.B) {
	for b.Loop() {
		if _, err := Expand("n[00001-10000]"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompress10000(b *testing.B) {
	hosts, err := Expand("n[00001-10000]")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		Compress(hosts)
	}
}
