package starter

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropped are the capabilities that gnoded gives up. It keeps those to act as users and read their processes
// (SETUID, SETGID, DAC_*, FOWNER, CHOWN, KILL, SYS_PTRACE), to mount and to make control groups and their device rules
// (SYS_ADMIN, BPF, PERFMON), to set limits and priorities (SYS_RESOURCE, SYS_NICE, IPC_LOCK), and SYS_MODULE and MKNOD
// for nvidia-modprobe, which the driver's library starts.
var dropped = []uintptr{unix.CAP_SYS_BOOT, unix.CAP_SYS_RAWIO, unix.CAP_SYS_TIME, unix.CAP_SYS_PACCT,
	unix.CAP_SYS_TTY_CONFIG, unix.CAP_NET_RAW, unix.CAP_NET_ADMIN, unix.CAP_NET_BROADCAST, unix.CAP_LINUX_IMMUTABLE,
	unix.CAP_LEASE, unix.CAP_SYSLOG, unix.CAP_MAC_ADMIN, unix.CAP_MAC_OVERRIDE, unix.CAP_AUDIT_CONTROL,
	unix.CAP_AUDIT_READ, unix.CAP_WAKE_ALARM, unix.CAP_BLOCK_SUSPEND}

// denied are the system calls that gnoded gives up on every machine; those of the architecture are beside.
var denied = []uint32{unix.SYS_REBOOT, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_SETTIMEOFDAY,
	unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT,
	unix.SYS_QUOTACTL, unix.SYS_SYSLOG, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_USERFAULTFD,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_PERF_EVENT_OPEN}

// cage gives all that up for the calling thread, and for the program that it executes next.
func cage() error {
	for _, c := range dropped {
		has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, c, 0, 0, 0)
		if err != nil || has == 0 {
			continue // the kernel does not know it, or somebody else has dropped it
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("give capability %d up: %w", c, err)
		}
	}
	code := program(append(denied, deniedHere...))
	filter := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0)
	if err != nil {
		return fmt.Errorf("filter system calls: %w", err)
	}
	return nil
}

// program is the filter: calls of the list, and all of another architecture, end with EPERM.
func program(list []uint32) []unix.SockFilter {
	const no = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	const load, equal, least, end = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K,
		unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	out := []unix.SockFilter{{Code: load, K: 4}, {Code: equal, K: architecture, Jt: 1}, {Code: end, K: no},
		{Code: load}, {Code: least, K: foreignCalls, Jf: 1}, {Code: end, K: no}}
	for _, nr := range list {
		out = append(out, unix.SockFilter{Code: equal, K: nr, Jf: 1}, unix.SockFilter{Code: end, K: no})
	}
	return append(out, unix.SockFilter{Code: end, K: unix.SECCOMP_RET_ALLOW})
}
