package gpu

import (
	"context"
	"time"
)

// Reading is the state of one GPU, or one MIG instance, at one moment. Readings of instances follow those of all GPUs;
// they have the instance's UUID, the GPU's index, and only its memory and processes, if the source has them. Numbers
// that the source does not have are -1.
type Reading struct {
	UUID         string
	Index        int // in Devices
	UtilPct      int // of the last sampling interval in which a kernel ran
	MemUtilPct   int // of it in which memory was read or written
	MemUsedMiB   int64
	MemTotalMiB  int64
	TempC        int
	PowerMilliW  int64
	EnergyMilliJ int64 // since the driver was loaded
	MemTempC     int   // of its memory
	SMClockMHz   int
	MemClockMHz  int
	Processes    []Process
	Faults       []Fault // since the last reading
	Lost         bool    // it has fallen off the bus, or no longer answers
}

// Process is one that uses a GPU. PID is in the namespace of whoever asked; MemMiB is -1 if unknown.
type Process struct {
	PID    int
	MemMiB int64
}

// The kinds of faults.
const (
	FaultXID     = "xid"     // an error that the driver logs; Code is its number
	FaultECC     = "ecc"     // uncorrectable memory errors; Code is how many there are new
	FaultRemap   = "remap"   // a memory row could not be replaced, or waits for a reset to be
	FaultRetired = "retired" // memory pages wait for a reset to be taken out of use
	FaultLost    = "lost"    // it has fallen off the bus, or the driver can't use it

	FaultRecovery = "recovery" // the driver's recovery action; Code is NVML's number
)

// Fault is something that went wrong with a GPU. Fatal: it should get no more work until an operator has checked or
// reset it.
type Fault struct {
	Kind  string
	Code  int
	Text  string // for people, one line
	Fatal bool
}

// maxProcesses and maxFaults bound one reading of one device.
const (
	maxProcesses = 256
	maxFaults    = 32
)

// plain is a reading without data, of a device that exists.
func plain(d *Device) Reading {
	return Reading{UUID: d.UUID, Index: d.Index, UtilPct: -1, MemUtilPct: -1, MemUsedMiB: -1, MemTotalMiB: d.MemMiB,
		TempC: -1, PowerMilliW: -1, EnergyMilliJ: -1, MemTempC: -1, SMClockMHz: -1, MemClockMHz: -1}
}

// minEvery is the shortest time between rounds.
const minEvery = 10 * time.Millisecond

// poll calls got with what read gives, now and then every so often, until ctx ends.
func poll(ctx context.Context, every time.Duration, now <-chan struct{}, read func() ([]Reading, error),
	got func([]Reading, error)) {
	tick := time.NewTicker(max(every, minEvery))
	defer tick.Stop()
	for ctx.Err() == nil {
		got(read())
		select {
		case <-tick.C:
		case <-now:
		case <-ctx.Done():
		}
	}
}
