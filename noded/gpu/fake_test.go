package gpu

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func writeFake(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

func TestFakeDevices(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gpus.json")
	writeFake(t, path, `{"dir": "dev", "devices": [{"count": 2, "type": "h100", "cpus": "0-1", "numa": 1},
		{"name": "NVIDIA A100-SXM4-80GB", "minor": 7, "pci": "0000:1a:00.0", "links": [0, 0, -1],
		 "mig": [{"profile": "1g.10gb", "gi": 7, "ci": 0, "memMiB": 9728, "caps": ["/dev/nvidia-caps/nvidia-cap66"]}]}]}`)
	got, err := Fake(path).Devices()
	if err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	a, c := got[0], got[2]
	if a.Type != "h100" || a.MemMiB != 81559 || a.NUMANode != 1 || a.CPUAffinity != "0-1" ||
		a.Path != filepath.Join(dir, "dev/nvidia0") || a.Links[1] != 18 || a.Links[2] != 0 || a.UUID == got[1].UUID {
		t.Errorf("%+v", a)
	}
	if c.Type != "a100" || c.Minor != 7 || c.Index != 2 || len(c.MIG) != 1 || c.MIG[0].Profile != "1g.10gb" ||
		!strings.HasPrefix(c.MIG[0].UUID, "MIG-") {
		t.Errorf("%+v", c)
	}
	for i := range got {
		if _, err := os.Lstat(got[i].Path); err != nil {
			t.Error(err)
		}
	}
	for text, want := range map[string]string{
		`{`:                             "unexpected EOF",
		`{"error": "the driver hangs"}`: "the driver hangs",
		`{"devices": [{"nmae": "x"}]}`:  `unknown field "nmae"`,
		`{"devices": [{}]}`:             "device 0: it has neither name nor type",
		`{"devices": [{"type":"t4","count":999}]}`:                                 "more than 255 devices",
		`{"devices": [{"type":"t4","uuid":"GPU-1"},{"type":"t4","uuid":"GPU-1"}]}`: "devices 0 and 1 have the UUID GPU-1",
		`{"devices": [{"type":"t4","uuid":"GPU-1","count":2}]}`:                    "leave out count",
		`{"devices": [{"type":"t4","links":[-1,2]}]}`:                              "device 0: 2 links for 1 devices",
		`{"devices": [{"type":"t4","mig":[{}]}]}`:                                  "MIG instance 0 has no profile",
	} {
		writeFake(t, path, text)
		if _, err := Fake(path).Devices(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	if _, err := Fake("/no/such/file").Devices(); err == nil {
		t.Error("no file: no error")
	}
}

// TestFakeWatch: changes of the file are read, and a fault is reported once.
func TestFakeWatch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gpus.json")
	writeFake(t, path, `{"devices": [{"type":"t4","uuid":"GPU-1"}]}`)
	type round struct {
		r   []Reading
		err error
	}
	rounds := make(chan round)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		Fake(path).Watch(ctx, 0, nil, func(r []Reading, err error) {
			select {
			case rounds <- round{r, err}:
			case <-ctx.Done():
			}
		})
		close(ended)
	}()
	until := func(what string, ok func(round) bool) {
		t.Helper()
		for late := time.After(10 * time.Second); ; {
			select {
			case r := <-rounds:
				if ok(r) {
					return
				}
			case <-late:
				t.Fatal("never seen: " + what)
			}
		}
	}
	until("idle", func(r round) bool {
		return len(r.r) == 1 && r.r[0].UtilPct == 0 && r.r[0].TempC == -1 && r.r[0].MemTotalMiB == 15360 &&
			r.r[0].PowerMilliW == -1
	})
	const busy = `{"devices": [{"type":"t4","uuid":"GPU-1","util":90,"memUsedMiB":100,"tempC":70,"powerW":61.5,` +
		`"energyJ":2,"processes":[{"pid":7,"memMiB":99}],"faults":[{"kind":"xid","code":79,"text":"gone","fatal":true}],` +
		`"lost":true}]}`
	writeFake(t, path, busy)
	faults := 0
	until("busy", func(r round) bool {
		if len(r.r) == 1 {
			faults += len(r.r[0].Faults)
		}
		return len(r.r) == 1 && r.r[0].UtilPct == 90 && r.r[0].PowerMilliW == 61500 && r.r[0].EnergyMilliJ == 2000 &&
			r.r[0].Processes[0] == Process{7, 99} && r.r[0].Lost
	})
	until("a round later", func(r round) bool { faults += len(r.r[0].Faults); return true })
	if faults != 1 {
		t.Errorf("the fault was told %d times", faults)
	}
	writeFake(t, path, strings.Replace(busy, `"fatal":true}`, `"fatal":true},{"kind":"ecc"}`, 1))
	until("another fault", func(r round) bool { return len(r.r[0].Faults) == 1 && r.r[0].Faults[0].Kind == "ecc" })
	writeFake(t, path, `{"error":"it hangs"}`)
	until("an error", func(r round) bool { return r.err != nil && strings.Contains(r.err.Error(), "it hangs") })
	stop()
	<-ended
}
