// Package gpu finds the GPUs of a node: the real ones through NVML, or stand-ins for machines that
// have none.
//
// It owns the only import of go-nvml, and no more of the driver than a question and an answer: NVML
// runs in a child process (HelperMain), so a driver that crashes, hangs or lacks a function costs
// gnoded an error, not its life: one for each list of devices, and one that lives on and gives
// readings (monitor.go). Nothing here is bound to jobs or touches /dev.
//
// Invariants: no driver is an answer (ErrNoDriver), not a failure. Indices count from 0 without
// holes, in NVML's order, which is by PCI address. Stand-ins of one directory are the same GPUs at
// every start.
//
// Read gpu.go (a device) and reading.go (how it is); then the ways to find some: nvml_cgo.go in a
// helper.go process (nvml_nocgo.go where there is no cgo), kernel.go without the library, fake.go
// from a file, standin.go. monitor.go, monitor_cgo.go and tracker.go are the readings, xid.go what
// the driver's error numbers mean; profile.go, layout.go and place_cgo.go are MIG.
package gpu
