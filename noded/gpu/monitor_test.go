package gpu

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// watching is a Watch of a fake driver that a test drives.
type watching struct {
	t      *testing.T
	dir    string // control files
	rounds chan round
}

type round struct {
	readings []Reading
	err      error
}

const (
	testEvery = 50 * time.Millisecond
	testLimit = 30 * time.Second // until something must have happened
)

func watch(t *testing.T, o NVMLOptions, defines ...string) *watching {
	t.Helper()
	w := &watching{t, t.TempDir(), make(chan round, 1000)}
	t.Setenv("FAKENVML", w.dir)
	if o.Binary == "" {
		o.Library = fakeNVML(t, defines...)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		NVML(o).Watch(ctx, testEvery, nil, func(r []Reading, err error) { w.rounds <- round{r, err} })
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(testLimit):
			t.Error("Watch did not end")
		}
	})
	return w
}

// set writes a control file at once.
func (w *watching) set(name, text string) {
	w.t.Helper()
	tmp := filepath.Join(w.dir, ".new")
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(w.dir, name)); err != nil {
		w.t.Fatal(err)
	}
}

// until waits for a round that is as wanted.
func (w *watching) until(what string, ok func(round) bool) round {
	w.t.Helper()
	limit := time.After(testLimit)
	var last round
	for {
		select {
		case last = <-w.rounds:
			if ok(last) {
				return last
			}
		case <-limit:
			w.t.Fatalf("no round with %s; the last: %+v", what, last)
		}
	}
}

// fault waits for a device's next fault.
func (w *watching) fault(gpu int) Fault {
	w.t.Helper()
	r := w.until("a fault", func(r round) bool {
		return r.err == nil && len(r.readings) > gpu && len(r.readings[gpu].Faults) > 0
	})
	for i, g := range r.readings {
		if i != gpu && len(g.Faults) > 0 || len(g.Faults) > 1 {
			w.t.Errorf("device %d: more faults: %+v", i, g.Faults)
		}
	}
	return r.readings[gpu].Faults[0]
}

func fine(r round) bool { return r.err == nil }

func TestMonitorReads(t *testing.T) {
	for _, define := range []string{"-DTODAY", "-DTEMPV"} {
		t.Run(define, func(t *testing.T) { monitorReads(t, define) })
	}
}

func monitorReads(t *testing.T, define string) {
	w := watch(t, NVMLOptions{}, define)
	r := w.until("readings", fine)
	if len(r.readings) != 4 {
		t.Fatalf("%+v", r)
	}
	for i, got := range r.readings {
		want := Reading{UUID: fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i), Index: i, UtilPct: 10 + i,
			MemUtilPct: 20 + i, MemUsedMiB: int64(1000 + i),
			MemTotalMiB: 81559, TempC: 40 + i, PowerMilliW: int64(300000 + i), EnergyMilliJ: int64(5000000000 + i),
			MemTempC: 50 + i, SMClockMHz: 1000 + i, MemClockMHz: 2000 + i}
		if i == 0 { // once each, with the memory of all instances
			want.Processes = []Process{{100, 64}, {200, 400}, {300, -1}, {400, 8}}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got\n%+v\nwant\n%+v", got, want)
		}
	}
	w.until("more", fine)
}

// TestMonitorOfAnOldDriver: readings that it lacks are unknown, without an error.
func TestMonitorOfAnOldDriver(t *testing.T) {
	r := watch(t, NVMLOptions{}, "-DOLD").until("readings", func(round) bool { return true })
	if r.err != nil || len(r.readings) != 4 {
		t.Fatalf("%+v", r)
	}
	want := Reading{UUID: "GPU-00000000-0000-0000-0000-000000000001", Index: 1, UtilPct: 11, MemUtilPct: 21, MemUsedMiB: 0,
		MemTotalMiB: 81559, TempC: -1, PowerMilliW: -1, EnergyMilliJ: -1, MemTempC: -1, SMClockMHz: -1, MemClockMHz: -1}
	if !reflect.DeepEqual(r.readings[1], want) {
		t.Errorf("got\n%+v\nwant\n%+v", r.readings[1], want)
	}
}

func TestMonitorFaults(t *testing.T) {
	w := watch(t, NVMLOptions{})
	w.until("readings", fine)
	for _, c := range []struct {
		file, text string
		gpu        int
		want       Fault
	}{
		{"xid", "2 79", 2, Fault{FaultXID, 79, "the GPU has fallen off the bus", true}},
		{"xid", "1 31", 1, Fault{FaultXID, 31, "memory page fault: most often the application", false}},
		{"xid", "1 95 3", 1, Fault{FaultXID, 95, "uncontained memory error (GPU instance 3)", true}},
		{"xid", "0 777", 0, Fault{FaultXID, 777, "see NVIDIA's catalogue of XIDs, and dmesg", false}},
		{"ecc", "1 2", 1, Fault{FaultECC, 2, "2 new uncorrectable memory errors", false}},
		{"ecc", "1 5", 1, Fault{FaultECC, 3, "3 new uncorrectable memory errors", false}},
		{"remap", "3 1", 3, Fault{FaultRemap, 0, "a failing row of memory is replaced at the GPU's next reset", false}},
		{"remap", "3 3", 3, Fault{FaultRemap, 0, "a failing row of memory could not be replaced", true}},
		{"action", "2 1", 2, Fault{FaultRecovery, 1, "the driver says that the GPU must be reset", true}},
		{"action", "1 4", 1, Fault{FaultRecovery, 4, "the driver says that the GPU should be reset when its work has ended",
			false}},
		{"xid", "3 145", 3, Fault{FaultXID, 145, "NVLink error", false}}, // the driver says that nothing has to be done
		{"retire", "0", 0, Fault{FaultRetired, 0, "failing pages of memory are retired at the GPU's next reset", false}},
	} {
		w.set(c.file, c.text)
		if got := w.fault(c.gpu); got != c.want {
			t.Errorf("%s %s: %+v, want %+v", c.file, c.text, got, c.want)
		}
	}
}

// TestMonitorUncorrectable: a GPU that can't replace rows has to be reset.
func TestMonitorUncorrectable(t *testing.T) {
	w := watch(t, NVMLOptions{}, "-DRETIRES")
	w.until("readings", fine)
	w.set("ecc", "1 1")
	if got, want := w.fault(1), (Fault{FaultECC, 1, "1 new uncorrectable memory errors", true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestMonitorLost(t *testing.T) {
	w := watch(t, NVMLOptions{})
	w.until("readings", fine)
	for file, want := range map[string]string{"lost": "the GPU has fallen off the bus, or no longer answers",
		"reset": "the driver refuses the GPU until it is reset"} {
		w.set(file, "2")
		r := w.until("a lost GPU", func(r round) bool { return fine(r) && r.readings[2].Lost })
		if got := r.readings[2]; !reflect.DeepEqual(got.Faults, []Fault{{FaultLost, 0, want, true}}) || got.UUID == "" ||
			got.UtilPct != -1 || r.readings[1].UtilPct != 11 || r.readings[3].UtilPct != 13 {
			t.Errorf("%s: %+v", file, r.readings)
		}
		if r := w.until("another round", fine); !r.readings[2].Lost || len(r.readings[2].Faults) != 0 {
			t.Errorf("%s, the next round: %+v", file, r.readings[2])
		}
		if err := os.Remove(filepath.Join(w.dir, file)); err != nil {
			t.Fatal(err)
		}
		w.until("it back", func(r round) bool { return fine(r) && !r.readings[2].Lost })
	}
}

// TestMonitorIsReplaced: whatever happens to the child, there is an error, then a new child, and no event comes twice.
func TestMonitorIsReplaced(t *testing.T) {
	w := watch(t, NVMLOptions{Timeout: 500 * time.Millisecond})
	w.until("readings", fine)
	w.set("remap", "3 2")
	w.fault(3)
	for _, c := range []struct{ file, want string }{
		{"crash", "the GPU monitor failed: exit status 3: driver: about to exit"},
		{"hang", "the GPU monitor said nothing in 500ms; the NVIDIA driver may hang (see dmesg)"},
	} {
		w.set(c.file, "")
		if r := w.until("an error", func(r round) bool { return r.err != nil }); r.err.Error() != c.want {
			t.Errorf("%s: %v", c.file, r.err)
		}
		if r := w.until("another error while there is no child", func(round) bool { return true }); r.err == nil ||
			r.err.Error() != c.want {
			t.Errorf("%s, the next round: %+v", c.file, r)
		}
		if r := w.until("readings", fine); len(r.readings) != 4 || len(r.readings[3].Faults) != 0 {
			t.Errorf("%s: %+v", c.file, r.readings)
		}
	}
}

func TestMonitorsInTrouble(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		o    NVMLOptions
		want string
	}{
		{NVMLOptions{Binary: "/no/such"}, "start the GPU monitor: fork/exec /no/such: no such file or directory"},
		{NVMLOptions{Binary: script("true", "exit 0")}, "the GPU monitor ended"},
		{NVMLOptions{Binary: script("crash", "echo driver: oh >&2; echo traceback >&2; kill -ABRT $$")},
			"the GPU monitor failed: signal: aborted: driver: oh"},
		{NVMLOptions{Binary: script("talk", "echo hello")}, "the GPU monitor gave an unreadable line"},
		{NVMLOptions{Binary: script("endless", "exec cat /dev/zero")},
			"the GPU monitor gave a line of more than 4194304 bytes"},
		{NVMLOptions{Binary: script("none", `echo '{"NoDriver":true}'`)}, ErrNoDriver.Error()},
		{NVMLOptions{Binary: script("error", `echo '{"Error":"count the devices: no"}'`)},
			"read the GPUs: count the devices: no"},
	} {
		w := watch(t, c.o)
		if r := w.until("an error", func(round) bool { return true }); r.err == nil ||
			!strings.HasPrefix(r.err.Error(), c.want) {
			t.Errorf("%s: %+v", c.o.Binary, r)
		}
	}
}

// TestMonitorEndsWithItsParent: the monitor of a killed gnoded ends, even one that hangs in the driver.
func TestMonitorEndsWithItsParent(t *testing.T) {
	dir := t.TempDir()
	lib := fakeNVML(t)
	if err := os.WriteFile(filepath.Join(dir, "hang"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], monitorArg, lib, "10ms")
	cmd.Env = append(os.Environ(), "FAKENVML="+dir)
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for limit := time.Now().Add(testLimit); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "hang")); err != nil {
			break
		}
		if time.Now().After(limit) {
			t.Fatal("it does not ask the driver")
		}
	}
	in.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testLimit):
		t.Error("it lives on")
		_ = cmd.Process.Kill()
	}
}

// TestTracker: GPUs that a monitor no longer finds, and counters that start again.
func TestTracker(t *testing.T) {
	var tr tracker
	gpu := func(i int, ecc int64) sample {
		s := sample{Reading: unknown(fmt.Sprint("GPU-", i), i), ECC: ecc}
		s.MemTotalMiB = 1000
		return s
	}
	lost := sample{Reading: Reading{Index: 1, Lost: true}}
	faults := func(gpus ...sample) (out []string) {
		for _, r := range tr.take(gpus) {
			for _, f := range r.Faults {
				out = append(out, fmt.Sprintf("%s %s %d", r.UUID, f.Kind, f.Code))
			}
		}
		return out
	}
	for i, c := range []struct {
		gpus []sample
		want string
	}{
		{[]sample{gpu(0, 7), gpu(1, -1)}, "[]"},
		{[]sample{gpu(0, 9), gpu(1, 0)}, "[GPU-0 ecc 2]"},
		{[]sample{gpu(0, 1), gpu(1, 0)}, "[GPU-0 ecc 1]"},
		{[]sample{gpu(0, 1)}, "[GPU-1 lost 0]"},
		{[]sample{gpu(0, 1), lost}, "[]"},
		{[]sample{gpu(0, 1), gpu(1, 0)}, "[]"},
		{[]sample{gpu(0, 1), lost}, "[GPU-1 lost 0]"},
	} {
		if got := fmt.Sprint(faults(c.gpus...)); got != c.want {
			t.Errorf("round %d: %s, want %s", i, got, c.want)
		}
	}
	late := sample{Reading: Reading{Index: 0, Lost: true}, Why: "dead"}
	tr = tracker{}
	for i, c := range []struct {
		gpus []sample
		want string
	}{
		{[]sample{late, gpu(1, 0)}, "[ lost 0]"}, // before anybody looked: by its place
		{[]sample{late, gpu(1, 0)}, "[]"},
		{[]sample{gpu(0, 1), gpu(1, 0)}, "[]"}, // another monitor finds it well
		{[]sample{late, gpu(1, 0)}, "[GPU-0 lost 0]"},
	} {
		if got := fmt.Sprint(faults(c.gpus...)); got != c.want {
			t.Errorf("lost before the start, round %d: %s, want %s", i, got, c.want)
		}
	}
	tr = tracker{}
	parted := gpu(0, 0)
	parted.Instances = []instanceUse{{"MIG-1", 10, 100, nil}}
	if got := tr.take([]sample{parted, gpu(1, 0)}); len(got) != 3 || got[1].UUID != "GPU-1" || got[2].UUID != "MIG-1" ||
		got[2].MemUsedMiB != 10 || got[2].MemTotalMiB != 100 || got[2].UtilPct != -1 {
		t.Errorf("an instance: %+v", got)
	}
	tr = tracker{}
	many := gpu(0, 1)
	for i := range 100 {
		many.XIDs = append(many.XIDs, event{i, -1})
	}
	if n := len(faults(many, gpu(1, 0))); n != maxFaults {
		t.Errorf("%d faults", n)
	}
}

// TestXIDs: errors of an application take no GPU out of service, errors that need a reset do, by the immediate actions
// of the catalogue's rows.
func TestXIDs(t *testing.T) {
	for _, c := range []struct {
		action string
		fatal  bool
		codes  []int
	}{
		{"RESTART_APP", false, []int{8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84,
			85, 86, 88, 89, 94, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105,
			126, 127, 128, 129, 130, 131, 132, 133, 134, 135, 139}},
		{"IGNORE", false, []int{37, 38, 43, 44, 63, 66, 67, 92, 93, 108, 121, 137, 141, 157, 160, 161}},
		{"WORKFLOW_XID_45, XID_154, CHECK_UVM", false, []int{45, 154, 159}},
		{"unused, or not known", false, []int{0, 5, 122, 123, 171, 172, 999, 100000}},
		{"RESET_GPU", true, []int{46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158}},
		{"RESTART_BM, RESTART_VM, CHECK_MECHANICALS", true, []int{79, 151, 54}},
		{"WORKFLOW_XID_48, WORKFLOW_NVLINK_ERR, WORKFLOW_NVLINK5_ERR", true,
			[]int{48, 74, 144, 145, 146, 147, 148, 149, 150}},
	} {
		for _, code := range c.codes {
			if f := xidFault(code, -1, recoveryUnknown); f.Fatal != c.fatal || f.Text == "" || f.Code != code ||
				f.Kind != FaultXID {
				t.Errorf("%s: %+v", c.action, f)
			}
		}
	}
	for code, fatal := range map[int]bool{79: true, 145: false} {
		if f := xidFault(code, -1, recoveryNone); f.Fatal != fatal {
			t.Errorf("where nothing has to be done: %+v", f)
		}
	}
	if f := xidFault(145, -1, recoveryReset); !f.Fatal {
		t.Errorf("%+v", f)
	}
}

// TestMonitorInstances: MIG instances have their own memory and processes.
func TestMonitorInstances(t *testing.T) {
	w := watch(t, NVMLOptions{}, "-DMIG")
	r := w.until("readings", fine)
	if len(r.readings) != 6 {
		t.Fatalf("%+v", r.readings)
	}
	want := unknown("MIG-00000000-0000-0000-0000-000000000001", 1)
	want.MemUsedMiB, want.MemTotalMiB, want.Processes = 100, 9984, []Process{{500, 90}}
	if !reflect.DeepEqual(r.readings[4], want) || r.readings[5].MemUsedMiB != 200 {
		t.Errorf("%+v", r.readings[4:])
	}
}
