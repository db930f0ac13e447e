package gpu

import "fmt"

// xid.go has the meaning of the driver's error numbers. Source: NVIDIA's "Analyzing Xid Errors with the Xid Catalog",
// as of autumn 2025, each row's immediate action. Fatal are the rows whose action is to reset the GPU, restart the
// machine or have the hardware looked at. Those whose action is to start the application again, or nothing, are not: a
// job made them, or the driver contained them, and the next job is safe. Rows without an action (167 to 173) go by
// their names. 61 is in the older catalogue only.

type xid struct {
	text    string
	fatal   bool
	decides bool // the driver's recovery action says whether it is fatal; if that is unknown, it is
}

// xidRow is one line of the catalogue, of errors that mean the same.
type xidRow struct {
	xid
	codes []int
}

func app(text string, codes ...int) xidRow { return xidRow{xid{text: text}, codes} }
func bad(text string, codes ...int) xidRow { return xidRow{xid{text: text, fatal: true}, codes} }

// xidRows are the catalogue's part that compute and data centre GPUs report.
var xidRows = []xidRow{
	app("a channel stopped: the application is ended", 8),
	app("an invalid or corrupted push buffer: most often the application", 11, 25, 32),
	app("graphics engine exception: most often the application", 13),
	app("memory page fault: most often the application", 31),
	app("driver firmware error", 37, 38),
	app("copy engine exception: the application is ended",
		39, 40, 41, 70, 71, 72, 75, 76, 77, 85, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135),
	app("the application's channel was stopped by an error of its own", 43),
	app("graphics engine fault during a context switch", 44),
	app("the application's channels were cleaned up after an earlier error", 45),
	bad("the GPU stopped processing", 46),
	bad("double-bit ECC error", 48),
	bad("auxiliary power is not connected to the board", 54),
	app("video or image engine exception: most often the application",
		60, 68, 82, 83, 84, 86, 88, 89, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 139, 142),
	bad("internal micro-controller halt", 61, 62, 169),
	app("a memory page or row is to be replaced at the next reset", 63),
	bad("a memory page or row could not be replaced", 64),
	app("illegal access by the driver", 66, 67),
	app("graphics engine class error: most often the application", 69),
	bad("NVLink error", 74),
	bad("the GPU has fallen off the bus", 79),
	app("corrupted data was sent to the GPU", 80),
	app("a high rate of single-bit ECC errors, which were corrected", 92),
	app("the board's InfoROM is worn more than planned", 93),
	app("contained memory error: only the application is harmed", 94),
	bad("uncontained memory error", 95),
	bad("timeout of a context switch", 109),
	bad("security fault", 110),
	bad("timeout of the GPU's system processor (GSP)", 119),
	bad("error of the GPU's system processor (GSP)", 120),
	app("corrected error on the chip-to-chip link", 121),
	app("the board's flash memory (InfoROM) could not be used", 122, 123, 124, 125),
	bad("NVLink training failed", 136),
	app("NVLink access error: most often the application", 108, 137),
	bad("unrecovered ECC error", 140),
	app("an application used CUDA's fast path wrongly", 141),
	bad("the GPU could not be initialized", 143),
	// from harmless to fatal: bits of the log's line, which are not told here, say which
	{xid{"NVLink error", true, true}, []int{144, 145, 146, 147, 148, 149, 150}},
	bad("key rotation failed: the machine must be restarted", 151),
	// xidFault's caller knows which
	app("the driver recommends another recovery action, see nvidia-smi -q", 154),
	bad("NVLink was taken down by the driver", 155),
	bad("a failing part was taken out of use: the GPU must be reset", 156),
	app("the driver could not take a failing part out of use", 157, 161),
	bad("fatal timeout", 158),
	app("an error on the chip-to-chip link that carried no data", 159),
	app("the driver took a memory channel out of use", 160),
	app("power smoothing of the board changed", 162, 163, 164, 165),
	app("NVLink error of confidential computing", 166, 170),
	bad("fatal timeout of PCIe", 167),
	app("less memory than the board has, because of errors while ECC is off", 168),
	app("uncorrectable DRAM error", 171),
	app("uncorrectable SRAM error", 172),
	bad("the chip-to-chip link failed", 173),
}

// xids finds a row by its number.
var xids = func() map[int]xid {
	out := map[int]xid{}
	for _, row := range xidRows {
		for _, code := range row.codes {
			out[code] = row.xid
		}
	}
	return out
}()

// xidOf gives the meaning of an error. Numbers that are not in the rows are reported and not fatal: most are of
// channels, so of one process.
func xidOf(code int) (xid, bool) {
	x, ok := xids[code]
	return x, ok
}

// unknownXID is what NVML gives for an error that it has no number of.
const unknownXID = 999

// xidFault is the fault of one error of that number. instance is the GPU instance that it is of, -1 for the whole GPU.
// recovery is the driver's recovery action for the GPU now.
func xidFault(code, instance int, r recovery) Fault {
	f := Fault{Kind: FaultXID, Code: code}
	x, ok := xidOf(code)
	switch {
	case ok:
		f.Text, f.Fatal = x.text, x.fatal && !(x.decides && r == recoveryNone)
	case code == unknownXID:
		f.Text = "an error that the driver gives no number of, see dmesg"
	default:
		f.Text = "see NVIDIA's catalogue of XIDs, and dmesg"
	}
	if instance >= 0 {
		f.Text += fmt.Sprintf(" (GPU instance %d)", instance)
	}
	return f
}

// recovery is NVML's GPU recovery action: how the driver wants a GPU to be repaired.
type recovery int

// The actions, with NVML's numbers.
const (
	recoveryUnknown       recovery = -1 // an older driver
	recoveryNone          recovery = 0
	recoveryReset         recovery = 1
	recoveryReboot        recovery = 2
	recoveryDrainP2P      recovery = 3
	recoveryDrainAndReset recovery = 4
)

// fault gives the fault of an action; ok is false if there is nothing to do.
func (r recovery) fault() (f Fault, ok bool) {
	f = Fault{Kind: FaultRecovery, Code: int(r), Fatal: true}
	switch r {
	case recoveryUnknown, recoveryNone:
		return f, false
	case recoveryReset:
		f.Text = "the driver says that the GPU must be reset"
	case recoveryReboot:
		f.Text = "the driver says that the machine must be restarted"
	case recoveryDrainP2P:
		f.Text = "the driver says that NVLink traffic of the GPU must end before it can be reset"
	case recoveryDrainAndReset: // running work may end: its memory is sound
		f.Text, f.Fatal = "the driver says that the GPU should be reset when its work has ended", false
	default:
		f.Text = fmt.Sprintf("the driver recommends recovery action %d", int(r))
	}
	return f, true
}
