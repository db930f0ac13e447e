// Package hardware finds out what a machine has and what of it is the node's.
//
// # What it owns
//
// CPUs and how they lie, memory, the boot; generic resources, from the driver and from gres.conf;
// which contradict each other is a problem, for which the leader drains the node. The device files
// behind each unit, and which of them a job or step may open. How units are named in jobs'
// environments.
//
// # What it does not own
//
// Whether GPUs are well and what they do (noded/gpu, and noded's gpu*.go); who gets what (the
// leader); control groups, to which its device rules go (noded/cgroup).
//
// # Invariants
//
//  1. It changes nothing on the machine, and keeps nothing: a look gives an [Inventory], a value.
//  2. What can't be read is said in Notes or Problem; it is no reason for gnoded not to start.
//  3. What every program needs is never denied (cgroup.IsBase).
//
// # Where to read
//
// look.go is what a look goes by, inventory.go what it gives. machine.go reads /proc and /sys.
// devices.go asks the driver and reads the lines of gres.conf, merge.go compares the two, found.go
// has what was found. units.go has the units' device files and makes device rules, allowed.go is
// AllowedDevices, unitnames.go the variables' style. describe.go writes it all as lines of a
// configuration.
package hardware
