package gpu

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// fake.go is AutoDetect=fake:FILE: GPUs that a file describes, with their readings. It is read again each round, so
// that a change of the file makes a GPU fill, heat up or break.

// maxFakeFile bounds the file, bytes.
const maxFakeFile = 4 << 20

// fakeFile is the file.
type fakeFile struct {
	Dir     string       `json:"dir"`   // where device files are made, see standin.go; "": none are made
	Error   string       `json:"error"` // what the driver would complain of
	Devices []fakeDevice `json:"devices"`
}

type fakeDevice struct {
	Count  int            `json:"count"` // so many alike; 0 is 1
	Name   string         `json:"name"`
	Type   string         `json:"type"`
	UUID   string         `json:"uuid"`
	Minor  *int           `json:"minor"`
	Path   string         `json:"path"`
	PCI    string         `json:"pci"`
	MemMiB int64          `json:"memMiB"`
	NUMA   *int           `json:"numa"`
	CPUs   string         `json:"cpus"`
	Links  []int          `json:"links"`
	MIG    []fakeInstance `json:"mig"`
	MIGOn  bool           `json:"migMode"` // without instances

	fakeReading
}

type fakeInstance struct {
	Profile string   `json:"profile"`
	UUID    string   `json:"uuid"`
	GI      int      `json:"gi"`
	CI      int      `json:"ci"`
	MemMiB  int64    `json:"memMiB"`
	Caps    []string `json:"caps"`

	Util       *int          `json:"util"`
	MemUsedMiB *int64        `json:"memUsedMiB"`
	Processes  []fakeProcess `json:"processes"`
}

type fakeReading struct {
	Util       *int          `json:"util"`
	MemUtil    *int          `json:"memUtil"`
	MemUsedMiB *int64        `json:"memUsedMiB"`
	Temp       *int          `json:"tempC"`
	PowerW     *float64      `json:"powerW"`
	EnergyJ    *float64      `json:"energyJ"`
	MemTemp    *int          `json:"memTempC"`
	SMClock    *int          `json:"smClockMHz"`
	MemClock   *int          `json:"memClockMHz"`
	Processes  []fakeProcess `json:"processes"`
	Faults     []fakeFault   `json:"faults"` // all of them: new ones are told once
	Lost       bool          `json:"lost"`
}

type fakeProcess struct {
	PID    int   `json:"pid"`
	MemMiB int64 `json:"memMiB"`
}

type fakeFault struct {
	Kind  string `json:"kind"`
	Code  int    `json:"code"`
	Text  string `json:"text"`
	Fatal bool   `json:"fatal"`
}

type fakeSource struct {
	path  string
	major int
}

// Fake is the GPUs that a file describes. The file's form is in gres.conf(5).
func Fake(path string) Source {
	major := nvidiaMajor
	if b, err := os.ReadFile("/proc/devices"); err == nil {
		major = freeMajor(string(b))
	}
	return &fakeSource{path, major}
}

func (s *fakeSource) Devices() ([]Device, error) {
	devices, _, dir, err := s.read()
	if err != nil {
		return nil, err
	}
	if dir != "" {
		if err := makeStandins(dir, devices); err != nil {
			return nil, err
		}
	}
	return devices, nil
}

// Watch reads the file each round. It reports faults when they appear in the file, and again only after they were
// absent.
func (s *fakeSource) Watch(ctx context.Context, every time.Duration, now <-chan struct{},
	got func([]Reading, error)) {
	told, lost := map[string][]fakeFault{}, map[string]bool{}
	poll(ctx, every, now, func() ([]Reading, error) {
		devices, reads, _, err := s.read()
		if err != nil {
			return nil, err
		}
		out := make([]Reading, len(devices))
		var parts []Reading
		for i := range devices {
			d, f := &devices[i], &reads[i].fakeReading
			out[i] = f.reading(d)
			now := f.Faults
			if before := told[d.UUID]; len(now) >= len(before) && reflect.DeepEqual(now[:len(before)], before) {
				now = now[len(before):]
			}
			for _, x := range now[:min(len(now), maxFaults)] {
				out[i].Faults = append(out[i].Faults, x.fault())
			}
			told[d.UUID] = f.Faults
			if f.Lost && !lost[d.UUID] && len(out[i].Faults) == 0 {
				out[i].Faults = append(out[i].Faults, Fault{Kind: FaultLost, Text: lostText, Fatal: true})
			}
			lost[d.UUID] = f.Lost
			for k := range d.MIG {
				parts = append(parts, reads[i].MIG[k].reading(d, &d.MIG[k]))
			}
		}
		return append(out, parts...), nil
	}, got)
}

// read takes the file as it is now.
func (s *fakeSource) read() (devices []Device, reads []*fakeDevice, dir string, err error) {
	bad := func(err error) ([]Device, []*fakeDevice, string, error) {
		return nil, nil, "", fmt.Errorf("fake GPUs: %w", err)
	}
	f, err := os.Open(s.path)
	if err != nil {
		return bad(err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFakeFile+1))
	if err != nil {
		return bad(err)
	}
	if len(b) > maxFakeFile {
		return bad(fmt.Errorf("%s has more than %d bytes", s.path, maxFakeFile))
	}
	var file fakeFile
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return bad(fmt.Errorf("%s: %w", s.path, err))
	}
	if file.Error != "" {
		return bad(errors.New(file.Error))
	}
	if dir = file.Dir; dir != "" && !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(s.path), dir)
	}
	for i := range file.Devices {
		fd := &file.Devices[i]
		if fd.Count < 0 {
			return bad(fmt.Errorf("%s: device %d: count %d", s.path, len(devices), fd.Count))
		}
		for range max(fd.Count, 1) {
			if len(devices) == maxStandins-1 {
				return bad(fmt.Errorf("%s describes more than %d devices", s.path, maxStandins-1))
			}
			d, err := fd.device(s, dir, len(devices))
			if err != nil {
				return bad(fmt.Errorf("%s: device %d: %w", s.path, len(devices), err))
			}
			if fd.Lost {
				d.Fault = lostText
			}
			devices, reads = append(devices, d), append(reads, fd)
		}
	}
	for i := range devices {
		if err := s.finish(devices, i); err != nil {
			return bad(err)
		}
	}
	return devices, reads, dir, nil
}

// finish checks what depends on the other devices.
func (s *fakeSource) finish(devices []Device, i int) error {
	d := &devices[i]
	if d.Links == nil {
		d.Links = make([]int, len(devices))
		for j := range devices {
			if devices[j].Type == d.Type {
				d.Links[j] = modelOf(d.Type).links
			}
		}
		d.Links[i] = -1
	}
	if len(d.Links) != len(devices) {
		return fmt.Errorf("%s: device %d: %d links for %d devices", s.path, i, len(d.Links), len(devices))
	}
	for j := range devices[:i] {
		if devices[j].UUID == d.UUID {
			return fmt.Errorf("%s: devices %d and %d have the UUID %s", s.path, j, i, d.UUID)
		}
	}
	return nil
}

func (fd *fakeDevice) device(s *fakeSource, dir string, index int) (Device, error) {
	d := Device{Index: index, Minor: index, Major: s.major, UUID: fd.UUID, Name: fd.Name, Type: strings.ToLower(fd.Type),
		MemMiB:   fd.MemMiB,
		PCIBusID: fd.PCI, NUMANode: -1, CPUAffinity: fd.CPUs, Path: fd.Path, Links: fd.Links, Standin: true}
	if fd.Minor != nil {
		d.Minor = *fd.Minor
	}
	if fd.NUMA != nil {
		d.NUMANode = *fd.NUMA
	}
	if d.Name == "" && d.Type == "" {
		return d, errors.New("it has neither name nor type")
	}
	if d.Type == "" {
		d.Type = ShortType(d.Name)
	}
	if m := modelOf(d.Type); d.Name == "" {
		d.Name = m.name
	}
	if d.MemMiB == 0 {
		d.MemMiB = modelOf(d.Type).memMiB
	}
	if d.UUID == "" {
		d.UUID = fakeUUID("GPU-", s.path, strconv.Itoa(index))
	}
	if d.Path == "" && dir != "" {
		d.Path = filepath.Join(dir, "nvidia"+strconv.Itoa(d.Minor))
	}
	if fd.Count > 1 && (fd.UUID != "" || fd.Minor != nil || fd.Path != "" || fd.PCI != "" || len(fd.MIG) > 0) {
		return d, errors.New("uuid, minor, path, pci and mig are of one device: leave out count")
	}
	if len(d.MIG) > 0 && d.Minor < 0 {
		return d, fmt.Errorf("minor %d", d.Minor)
	}
	if fd.MIGOn {
		d.MIG = []Instance{}
	}
	for i, m := range fd.MIG {
		if m.Profile == "" {
			return d, fmt.Errorf("MIG instance %d has no profile", i)
		}
		in := Instance{Index: i, Profile: m.Profile, UUID: m.UUID, GI: m.GI, CI: m.CI, MemMiB: m.MemMiB, Caps: m.Caps}
		if in.UUID == "" {
			in.UUID = fakeUUID("MIG-", s.path, d.UUID, strconv.Itoa(i))
		}
		d.MIG = append(d.MIG, in)
	}
	return d, nil
}

// fault gives an XID the catalogue's text if the file has none, and a recovery action NVML's.
func (f *fakeFault) fault() Fault {
	switch {
	case f.Text != "" || f.Fatal:
	case f.Kind == FaultXID:
		return xidFault(f.Code, -1, recoveryUnknown)
	case f.Kind == FaultRecovery:
		if said, ok := recovery(f.Code).fault(); ok {
			return said
		}
	}
	return Fault(*f)
}

func (f *fakeInstance) reading(d *Device, in *Instance) Reading {
	r := unknown(in.UUID, d.Index)
	r.MemTotalMiB = in.MemMiB
	set(&r.UtilPct, f.Util)
	set(&r.MemUsedMiB, f.MemUsedMiB)
	for _, p := range f.Processes[:min(len(f.Processes), maxProcesses)] {
		r.Processes = append(r.Processes, Process(p))
	}
	return r
}

func (f *fakeReading) reading(d *Device) Reading {
	r := plain(d)
	r.UtilPct, r.MemUtilPct, r.MemUsedMiB = 0, 0, 0
	set(&r.UtilPct, f.Util)
	set(&r.MemUtilPct, f.MemUtil)
	set(&r.MemUsedMiB, f.MemUsedMiB)
	set(&r.TempC, f.Temp)
	set(&r.MemTempC, f.MemTemp)
	set(&r.SMClockMHz, f.SMClock)
	set(&r.MemClockMHz, f.MemClock)
	if f.PowerW != nil {
		r.PowerMilliW = int64(*f.PowerW * 1000)
	}
	if f.EnergyJ != nil {
		r.EnergyMilliJ = int64(*f.EnergyJ * 1000)
	}
	for _, p := range f.Processes[:min(len(f.Processes), maxProcesses)] {
		r.Processes = append(r.Processes, Process(p))
	}
	r.Lost = f.Lost
	return r
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// fakeUUID makes one that is the same at every start.
func fakeUUID(prefix string, of ...string) string {
	h := sha256.Sum256([]byte(strings.Join(of, "/")))
	return fmt.Sprintf("%s%x-%x-%x-%x-%x", prefix, h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}
