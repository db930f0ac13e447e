package hardware

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gbatch/internal/proto"
)

// fakeMachine writes a /proc and /sys in which CPU i lies as place(i) says.
func fakeMachine(t testing.TB, online string, cpus []int, place func(cpu int) (pkg, core int)) Machine {
	t.Helper()
	m := Machine{Root: t.TempDir()}
	write := func(path, text string) {
		path = filepath.Join(m.Root, path)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text), 0o644))
	}
	write("sys/devices/system/cpu/online", online+"\n")
	for _, cpu := range cpus {
		if place == nil {
			continue
		}
		pkg, core := place(cpu)
		write(fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu), fmt.Sprintf("%d\n", pkg))
		write(fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/core_id", cpu), fmt.Sprintf("%d\n", core))
	}
	write("proc/meminfo", "MemTotal:       24684168 kB\nMemFree:        23654568 kB\nMemAvailable:   1 kB\n")
	write("proc/loadavg", "1.88 0.99 0.54 3/123 4567\n")
	write("proc/stat", "cpu  1 2 3\nbtime 1763718160\nprocesses 5\n")
	write("proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555\n")
	return m
}

func all(int) bool { return true }

func seq(n int) (out []int) {
	for i := range n {
		out = append(out, i)
	}
	return out
}

func TestCPUs(t *testing.T) {
	for _, tc := range []struct {
		name, online string
		cpus         []int
		place        func(int) (int, int)
		want         proto.Hardware
		order        []int
	}{
		{"two sockets, two threads, threads numbered last", "0-7", seq(8), func(c int) (int, int) { return c / 2 % 2, c % 2 },
			proto.Hardware{CPUs: 8, Sockets: 2, Cores: 2, Threads: 2}, []int{0, 4, 1, 5, 2, 6, 3, 7}},
		{"one socket without threads", "0-3", seq(4), func(c int) (int, int) { return 0, c },
			proto.Hardware{CPUs: 4, Sockets: 1, Cores: 4, Threads: 1}, seq(4)},
		{"hybrid: two cores with threads, two without", "0-5", seq(6), func(c int) (int, int) { return 0, max(c-2, c/2) },
			proto.Hardware{CPUs: 6, Sockets: 1, Cores: 6, Threads: 1}, nil},
		{"one offline", "0,2-3", []int{0, 2, 3}, func(c int) (int, int) { return 0, c },
			proto.Hardware{CPUs: 3, Sockets: 1, Cores: 3, Threads: 1}, []int{0, 2, 3}},
		{"no topology", "0-1", nil, nil, proto.Hardware{CPUs: 2, Sockets: 1, Cores: 2, Threads: 1}, []int{0, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := fakeMachine(t, tc.online, tc.cpus, tc.place)
			order, hw, err := m.cpus(all)
			must(t, err)
			if !reflect.DeepEqual(hw, tc.want) {
				t.Errorf("got %+v, want %+v", hw, tc.want)
			}
			if tc.order != nil && !reflect.DeepEqual(order, tc.order) {
				t.Errorf("order %v, want %v", order, tc.order)
			}
		})
	}
	if _, _, err := (Machine{Root: t.TempDir()}).cpus(all); err == nil {
		t.Error("a machine without CPUs")
	}
	if _, _, err := fakeMachine(t, "many", nil, nil).cpus(all); err == nil || !strings.Contains(err.Error(), "many") {
		t.Errorf("nonsense: %v", err)
	}
}

func TestMemoryLoadBoot(t *testing.T) {
	m := fakeMachine(t, "0", nil, nil)
	total, free, err := m.Memory()
	if total != 24105 || free != 23100 || err != nil {
		t.Error(total, free, err)
	}
	if load, err := m.LoadMilli(); load != 1880 || err != nil {
		t.Error(load, err)
	}
	id, at, err := m.boot()
	if id != "11111111-2222-3333-4444-555555555555" || at != 1763718160000 || err != nil {
		t.Error(id, at, err)
	}
	for _, broken := range []struct{ file, text string }{{"proc/meminfo", "x"}, {"proc/meminfo", "MemTotal: x kB"},
		{"proc/loadavg", "-1"}, {"proc/loadavg", ""}, {"proc/stat", "btime x"}, {"proc/stat", ""}} {
		m := fakeMachine(t, "0", nil, nil)
		must(t, os.WriteFile(filepath.Join(m.Root, broken.file), []byte(broken.text), 0o644))
		_, _, e1 := m.Memory()
		_, e2 := m.LoadMilli()
		_, _, e3 := m.boot()
		if e1 == nil && e2 == nil && e3 == nil {
			t.Errorf("%s %q: no error", broken.file, broken.text)
		}
	}
}

// Any machine has CPUs, memory, disk space, an operating system and a boot time.
func TestThisMachine(t *testing.T) {
	o := Look{Name: "n1", TmpFS: t.TempDir()}
	inv, err := Take(Machine{Root: "/"}, &o)
	must(t, err)
	h := inv.Hw
	if h.CPUs < 1 || h.Sockets*h.Cores*h.Threads != h.CPUs || h.MemMiB < 1 || h.TmpMiB < 1 || h.OS == "" || h.Arch == "" ||
		inv.BootID == "" ||
		inv.BootAt == 0 || len(inv.CPUs) != int(h.CPUs) {
		t.Errorf("%+v", inv)
	}
}
