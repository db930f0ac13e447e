//go:build cgo && linux

package gpu

// monitor_cgo.go is the monitor's questions to the driver. They run in its process: see nvml_cgo.go.

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const (
	eventWait   = 5 * time.Second       // of one call that waits for events
	eventPause  = time.Second           // after one that failed
	eventGather = 20 * time.Millisecond // events come in groups
	eventQueue  = 256                   // events that wait for a round; more are dropped
	eventTypes  = nvml.EventTypeXidCriticalError | nvml.EventTypeDoubleBitEccError
)

// nvmlMonitor asks one library.
type nvmlMonitor struct {
	lib    nvml.Interface
	known  map[string]bool // symbols
	gpus   []watched
	events chan gpuEvent
}

// watched is one GPU.
type watched struct {
	handle nvml.Device // nil: it can't be used
	why    string      // in that case
	uuid   string
	xids   []event
	parts  []part // its MIG instances
}

// part is one MIG instance. Those made later appear after a restart of gnoded, as in its list of devices.
type part struct {
	handle nvml.Device
	uuid   string
}

type gpuEvent struct {
	gpu int
	event
	xid bool // else it only says that counts have changed
}

// monitor gives emit a round now and then every so often, and whenever it is asked or the driver reports something,
// until either fails.
func monitor(library string, every time.Duration, asked <-chan struct{}, emit func([]sample) error) error {
	lib, err := start(library)
	if err != nil {
		return err
	}
	m := &nvmlMonitor{lib: lib, known: map[string]bool{}, events: make(chan gpuEvent, eventQueue)}
	if err := m.find(); err != nil {
		return err
	}
	m.register()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		gpus, err := m.round()
		if err != nil {
			return err
		}
		if err := emit(gpus); err != nil {
			return fmt.Errorf("print a round: %w", err)
		}
		select {
		case <-tick.C:
		case <-asked:
		case e := <-m.events:
			m.keep(e)
			time.Sleep(eventGather)
		}
		for more := true; more; {
			select {
			case e := <-m.events:
				m.keep(e)
			default:
				more = false
			}
		}
	}
}

// has reports whether the driver has a function.
func (m *nvmlMonitor) has(symbol string) bool {
	ok, asked := m.known[symbol]
	if !asked {
		ok = m.lib.Extensions().LookupSymbol(symbol) == nil
		m.known[symbol] = ok
	}
	return ok
}

// find lists the GPUs in the order of query.
func (m *nvmlMonitor) find() error {
	n, r := m.lib.DeviceGetCount()
	if r != nvml.SUCCESS {
		return fmt.Errorf("count the devices: %s", nvml.ErrorString(r))
	}
	for i := range n {
		h, r := m.lib.DeviceGetHandleByIndex(i)
		if r == nvml.ERROR_NO_PERMISSION {
			continue // a container hides this device
		}
		g, err := watched{handle: h}, failed("", r)
		if err == nil {
			g.uuid, r = h.GetUUID()
			err = failed("UUID", r)
		}
		if err != nil && driverGone(err) {
			return fmt.Errorf("device %d: %w", i, err)
		} else if err != nil {
			g = watched{why: faultOf(err)}
		}
		m.gpus = append(m.gpus, g)
		m.parts(&m.gpus[len(m.gpus)-1])
	}
	return nil
}

// parts lists a GPU's instances, as far as the driver gives them.
func (m *nvmlMonitor) parts(g *watched) {
	if g.handle == nil || !m.has("nvmlDeviceGetMigMode") || !m.has("nvmlDeviceGetMaxMigDeviceCount") ||
		!m.has("nvmlDeviceGetMigDeviceHandleByIndex") {
		return
	}
	if mode, _, r := g.handle.GetMigMode(); r != nvml.SUCCESS || mode != nvml.DEVICE_MIG_ENABLE {
		return
	}
	n, r := g.handle.GetMaxMigDeviceCount()
	for i := 0; r == nvml.SUCCESS && i < n; i++ {
		h, r := g.handle.GetMigDeviceHandleByIndex(i)
		if r != nvml.SUCCESS {
			continue // indices have holes
		}
		if uuid, r := h.GetUUID(); r == nvml.SUCCESS {
			g.parts = append(g.parts, part{h, uuid})
		}
	}
}

// register asks for the events that devices can report, and starts waiting for them. A driver without events is watched
// without them.
func (m *nvmlMonitor) register() {
	if !m.has("nvmlEventSetCreate") || !m.has("nvmlDeviceRegisterEvents") || !m.has("nvmlDeviceGetSupportedEventTypes") ||
		!m.has("nvmlEventSetWait_v2") && !m.has("nvmlEventSetWait") {
		return
	}
	set, r := m.lib.EventSetCreate()
	if r != nvml.SUCCESS {
		fmt.Fprintln(os.Stderr, "no XIDs: make an event set:", nvml.ErrorString(r))
		return
	}
	some := false
	for _, g := range m.gpus {
		if g.handle == nil {
			continue
		}
		types, r := g.handle.GetSupportedEventTypes()
		if types &= eventTypes; r != nvml.SUCCESS || types == 0 {
			continue
		}
		if r := g.handle.RegisterEvents(types, set); r == nvml.SUCCESS {
			some = true
		}
	}
	if some {
		go m.wait(set, slices.Clone(m.gpus))
	}
}

// wait forwards events for as long as the process lives.
func (m *nvmlMonitor) wait(set nvml.EventSet, gpus []watched) {
	for {
		e, r := set.Wait(uint32(eventWait.Milliseconds()))
		switch r {
		case nvml.SUCCESS:
		case nvml.ERROR_TIMEOUT:
			continue
		default: // a lost GPU, say: the rounds find which
			time.Sleep(eventPause)
			continue
		}
		i := slices.IndexFunc(gpus, func(g watched) bool { return g.handle != nil && g.handle == e.Device })
		if i < 0 {
			continue
		}
		g := gpuEvent{gpu: i, xid: e.EventType == nvml.EventTypeXidCriticalError,
			event: event{Code: int(e.EventData), Instance: -1}}
		if e.GpuInstanceId != noInstance {
			g.Instance = int(e.GpuInstanceId)
		}
		select {
		case m.events <- g:
		default:
		}
	}
}

// noInstance is NVML's number of no GPU instance.
const noInstance = 0xFFFFFFFF

// keep remembers an event for the next round; one that is the same says nothing more.
func (m *nvmlMonitor) keep(e gpuEvent) {
	g := &m.gpus[e.gpu]
	if e.xid && len(g.xids) < maxFaults && !slices.Contains(g.xids, e.event) {
		g.xids = append(g.xids, e.event)
	}
}

// round reads all GPUs.
func (m *nvmlMonitor) round() ([]sample, error) {
	out := make([]sample, len(m.gpus))
	for i := range m.gpus {
		g := &m.gpus[i]
		s, err := m.sample(i)
		if err != nil {
			return nil, fmt.Errorf("device %d: %w", i, err)
		}
		s.XIDs, g.xids = g.xids, nil
		out[i] = s
	}
	return out, nil
}

func (m *nvmlMonitor) sample(i int) (sample, error) {
	g := &m.gpus[i]
	nothing := func() sample { return sample{Reading: unknown(g.uuid, i), ECC: -1, Recovery: recoveryUnknown} }
	s := nothing()
	if g.handle == nil {
		s.Lost, s.Why = true, g.why
		return s, nil
	}
	for _, read := range [...]func(nvml.Device, *sample) nvml.Return{m.load, m.memory, m.power, m.clocks, m.processes,
		m.errors, m.action} {
		switch r := read(g.handle, &s); r {
		case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED:
			s = nothing()
			s.Lost, s.NeedsReset = true, r == nvml.ERROR_RESET_REQUIRED
			return s, nil
		case nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED, nvml.ERROR_LIB_RM_VERSION_MISMATCH:
			return s, fmt.Errorf("the driver was replaced: %s", nvml.ErrorString(r))
		}
	}
	for _, p := range g.parts { // what they don't answer is unknown: the GPU itself has just answered
		u := sample{Reading: unknown(p.uuid, i)}
		m.memory(p.handle, &u)
		m.processes(p.handle, &u)
		s.Instances = append(s.Instances, instanceUse{p.uuid, u.MemUsedMiB, u.MemTotalMiB, u.Processes})
	}
	return s, nil
}

// worst keeps what ends a look at a device; what it can't tell, or may not, does not.
func worst(rs ...nvml.Return) nvml.Return {
	for _, r := range rs {
		switch r {
		case nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED, nvml.ERROR_UNINITIALIZED, nvml.ERROR_DRIVER_NOT_LOADED,
			nvml.ERROR_LIB_RM_VERSION_MISMATCH:
			return r
		}
	}
	return nvml.SUCCESS
}

func (m *nvmlMonitor) load(h nvml.Device, s *sample) nvml.Return {
	if !m.has("nvmlDeviceGetUtilizationRates") {
		return nvml.SUCCESS
	}
	u, r := h.GetUtilizationRates()
	if r == nvml.SUCCESS {
		s.UtilPct, s.MemUtilPct = int(u.Gpu), int(u.Memory)
	}
	return worst(r)
}

// memory prefers the call that does not count the driver's own part as used.
func (m *nvmlMonitor) memory(h nvml.Device, s *sample) nvml.Return {
	if m.has("nvmlDeviceGetMemoryInfo_v2") {
		v, r := h.GetMemoryInfo_v2()
		if r == nvml.SUCCESS {
			s.MemUsedMiB, s.MemTotalMiB = int64(v.Used>>20), int64(v.Total>>20)
			return r
		}
		if w := worst(r); w != nvml.SUCCESS {
			return w
		}
	}
	if !m.has("nvmlDeviceGetMemoryInfo") {
		return nvml.SUCCESS
	}
	v, r := h.GetMemoryInfo()
	if r == nvml.SUCCESS {
		s.MemUsedMiB, s.MemTotalMiB = int64(v.Used>>20), int64(v.Total>>20)
	}
	return worst(r)
}

func (m *nvmlMonitor) power(h nvml.Device, s *sample) nvml.Return {
	var rs [3]nvml.Return
	if m.has("nvmlDeviceGetTemperature") {
		var v uint32
		if v, rs[0] = h.GetTemperature(nvml.TEMPERATURE_GPU); rs[0] == nvml.SUCCESS {
			s.TempC = int(v)
		}
	} else if m.has("nvmlDeviceGetTemperatureV") { // what is to replace it
		var t nvml.Temperature // of sensor 0, the GPU
		if t, rs[0] = h.GetTemperatureV().V1(); rs[0] == nvml.SUCCESS {
			s.TempC = int(t.Temperature)
		}
	}
	if m.has("nvmlDeviceGetPowerUsage") {
		var v uint32
		if v, rs[1] = h.GetPowerUsage(); rs[1] == nvml.SUCCESS {
			s.PowerMilliW = int64(v)
		}
	}
	if m.has("nvmlDeviceGetTotalEnergyConsumption") {
		var v uint64
		if v, rs[2] = h.GetTotalEnergyConsumption(); rs[2] == nvml.SUCCESS {
			s.EnergyMilliJ = int64(v)
		}
	}
	return worst(rs[:]...)
}

// clocks reads how fast the GPU and its memory run, and the memory's temperature, which only some GPUs know.
func (m *nvmlMonitor) clocks(h nvml.Device, s *sample) nvml.Return {
	var rs [3]nvml.Return
	if m.has("nvmlDeviceGetClockInfo") {
		var v uint32
		if v, rs[0] = h.GetClockInfo(nvml.CLOCK_SM); rs[0] == nvml.SUCCESS {
			s.SMClockMHz = int(v)
		}
		if v, rs[1] = h.GetClockInfo(nvml.CLOCK_MEM); rs[1] == nvml.SUCCESS {
			s.MemClockMHz = int(v)
		}
	}
	if m.has("nvmlDeviceGetFieldValues") {
		field := []nvml.FieldValue{{FieldId: nvml.FI_DEV_MEMORY_TEMP}}
		rs[2] = h.GetFieldValues(field)
		if rs[2] == nvml.SUCCESS && nvml.Return(field[0].NvmlReturn) == nvml.SUCCESS {
			s.MemTempC = int(binary.NativeEndian.Uint32(field[0].Value[:])) // of any type that it has had
		}
	}
	return worst(rs[:]...)
}

// processes lists those that compute and those that draw, each once, with its memory in all instances.
func (m *nvmlMonitor) processes(h nvml.Device, s *sample) nvml.Return {
	type use struct{ pid, gi, ci uint32 }
	mem := map[use]int64{}
	add := func(list []nvml.ProcessInfo, r nvml.Return) nvml.Return {
		for _, p := range list {
			k, n := use{p.Pid, p.GpuInstanceId, p.ComputeInstanceId}, int64(-1)
			if p.UsedGpuMemory != unknownMemory {
				n = int64(p.UsedGpuMemory >> 20)
			}
			if before, ok := mem[k]; !ok || n > before {
				mem[k] = n
			}
		}
		return r
	}
	var rs [2]nvml.Return
	for i, kind := range []string{"nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"} {
		if !m.has(kind+"_v3") && !m.has(kind+"_v2") && !m.has(kind) {
			continue
		}
		if i == 0 {
			rs[i] = add(h.GetComputeRunningProcesses())
		} else {
			rs[i] = add(h.GetGraphicsRunningProcesses())
		}
	}
	by := map[int]int64{}
	for k, n := range mem {
		if before, ok := by[int(k.pid)]; ok && (n < 0 || before < 0) {
			n = max(n, before)
		} else if ok {
			n += before
		}
		by[int(k.pid)] = n
	}
	for pid, n := range by {
		s.Processes = append(s.Processes, Process{pid, n})
	}
	slices.SortFunc(s.Processes, func(a, b Process) int { return a.PID - b.PID })
	s.Processes = s.Processes[:min(len(s.Processes), maxProcesses)]
	return worst(rs[:]...)
}

// unknownMemory is NVML's VALUE_NOT_AVAILABLE.
const unknownMemory = ^uint64(0)

func (m *nvmlMonitor) errors(h nvml.Device, s *sample) nvml.Return {
	var rs [3]nvml.Return
	if m.has("nvmlDeviceGetTotalEccErrors") {
		var n uint64
		if n, rs[0] = h.GetTotalEccErrors(nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC); rs[0] == nvml.SUCCESS {
			s.ECC = int64(n)
		}
	}
	if m.has("nvmlDeviceGetRemappedRows") {
		var pending, failed bool
		if _, _, pending, failed, rs[1] = h.GetRemappedRows(); rs[1] == nvml.SUCCESS {
			s.Remaps, s.RemapPending, s.RemapFailed = true, pending, failed
		}
	}
	if m.has("nvmlDeviceGetRetiredPagesPendingStatus") {
		var pending nvml.EnableState
		if pending, rs[2] = h.GetRetiredPagesPendingStatus(); rs[2] == nvml.SUCCESS {
			s.RetirePending = pending == nvml.FEATURE_ENABLED
		}
	}
	return worst(rs[:]...)
}

// action asks for the driver's recovery action for a device.
func (m *nvmlMonitor) action(h nvml.Device, s *sample) nvml.Return {
	if !m.has("nvmlDeviceGetFieldValues") {
		return nvml.SUCCESS
	}
	v := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	r := h.GetFieldValues(v)
	if r == nvml.SUCCESS && nvml.Return(v[0].NvmlReturn) == nvml.SUCCESS {
		s.Recovery = recovery(binary.NativeEndian.Uint32(v[0].Value[:])) // an unsigned int
	}
	return worst(r)
}
