// Package hardware finds a machine's hardware and the node's part of it.
//
// # What it owns
//
// CPUs and their topology, memory, the boot; generic resources, from the driver and from gres.conf:
// if these contradict each other, that is a problem, and the leader drains the node. The device
// files of each unit, and those that a job or step may open. The names of units in jobs'
// environments.
//
// # What it does not own
//
// The health and use of GPUs (noded/gpu, and noded's gpu*.go); the allocation of units (the
// leader); control groups, which get its device rules (noded/cgroup).
//
// # Invariants
//
//  1. It changes nothing on the machine, and has no state: its result is an [Inventory], a value.
//  2. Notes or Problem name data that can't be read; gnoded starts all the same.
//  3. Devices that every program needs are never denied (cgroup.IsBase).
//
// # Where to read
//
// look.go has the input, inventory.go the result. machine.go reads /proc and /sys. devices.go asks
// the driver and reads the lines of gres.conf, merge.go compares the two, found.go has the units
// found. units.go has the units' device files and makes device rules, allowed.go is AllowedDevices,
// unitnames.go the variables' style. describe.go writes it all as lines of a configuration.
package hardware
