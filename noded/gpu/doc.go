// Package gpu finds the GPUs of a node: the real ones through NVML, or stand-ins for machines that
// have none.
//
// It owns the only import of go-nvml. NVML runs in child processes (HelperMain), so a driver that
// crashes, hangs or lacks a function causes an error in gnoded, not its end: one process for each
// list of devices, and a permanent one for readings (monitor.go). Nothing here depends on jobs or
// touches /dev.
//
// Invariants: no driver is an answer (ErrNoDriver), not a failure. Indices count from 0 without
// holes, in NVML's order, which is by PCI address. Stand-ins of one directory are the same GPUs at
// every start.
//
// Read gpu.go (a device) and reading.go (its reading); then the sources: nvml_cgo.go in a helper.go
// process (nvml_nocgo.go where there is no cgo), kernel.go without the library, fake.go from a
// file, standin.go. monitor.go, monitor_cgo.go and tracker.go are the readings, xid.go what the
// driver's error numbers mean; profile.go, layout.go and place_cgo.go are MIG.
package gpu
