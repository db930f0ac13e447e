package gpu

import "fmt"

// xid.go says what the driver's error numbers mean for a GPU. Source: NVIDIA's "Analyzing Xid Errors with the Xid
// Catalog", as of autumn 2025, each row's immediate action. Fatal are the rows whose action is to reset the GPU,
// restart the machine or have the hardware looked at. Those whose action is to start the application again, or nothing,
// are not: a job made them, or the driver contained them, and the next job is safe. Rows without an action (167 to 173)
// go by their names. 61 is in the older catalogue only.

type xid struct {
	text    string
	fatal   bool
	decides bool // the driver's recovery action says whether it is fatal; where that is not known, it is
}

// xidOf gives the catalogue's part that compute and data centre GPUs report. Numbers that are not in it are told and
// not fatal: most are of channels, that is of one process.
func xidOf(code int) (xid, bool) {
	app := func(text string) (xid, bool) { return xid{text: text}, true }
	bad := func(text string) (xid, bool) { return xid{text: text, fatal: true}, true }
	switch code {
	case 8:
		return app("a channel stopped: the application is ended")
	case 11, 25, 32:
		return app("an invalid or corrupted push buffer: most often the application")
	case 13:
		return app("graphics engine exception: most often the application")
	case 31:
		return app("memory page fault: most often the application")
	case 37, 38:
		return app("driver firmware error")
	case 39, 40, 41, 70, 71, 72, 75, 76, 77, 85, 126, 127, 128, 129, 130, 131, 132, 133, 134, 135:
		return app("copy engine exception: the application is ended")
	case 43:
		return app("the application's channel was stopped by an error of its own")
	case 44:
		return app("graphics engine fault during a context switch")
	case 45:
		return app("the application's channels were cleaned up after an earlier error")
	case 46:
		return bad("the GPU stopped processing")
	case 48:
		return bad("double-bit ECC error")
	case 54:
		return bad("auxiliary power is not connected to the board")
	case 60, 68, 82, 83, 84, 86, 88, 89, 96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 139, 142:
		return app("video or image engine exception: most often the application")
	case 61, 62, 169:
		return bad("internal micro-controller halt")
	case 63:
		return app("a memory page or row is to be replaced at the next reset")
	case 64:
		return bad("a memory page or row could not be replaced")
	case 66, 67:
		return app("illegal access by the driver")
	case 69:
		return app("graphics engine class error: most often the application")
	case 74:
		return bad("NVLink error")
	case 79:
		return bad("the GPU has fallen off the bus")
	case 80:
		return app("corrupted data was sent to the GPU")
	case 92:
		return app("a high rate of single-bit ECC errors, which were corrected")
	case 93:
		return app("the board's InfoROM is worn more than planned")
	case 94:
		return app("contained memory error: only the application is harmed")
	case 95:
		return bad("uncontained memory error")
	case 109:
		return bad("timeout of a context switch")
	case 110:
		return bad("security fault")
	case 119:
		return bad("timeout of the GPU's system processor (GSP)")
	case 120:
		return bad("error of the GPU's system processor (GSP)")
	case 121:
		return app("corrected error on the chip-to-chip link")
	case 122, 123, 124, 125:
		return app("the board's flash memory (InfoROM) could not be used")
	case 136:
		return bad("NVLink training failed")
	case 108, 137:
		return app("NVLink access error: most often the application")
	case 140:
		return bad("unrecovered ECC error")
	case 141:
		return app("an application used CUDA's fast path wrongly")
	case 143:
		return bad("the GPU could not be initialized")
	case 144, 145, 146, 147, 148, 149, 150:
		// from harmless to fatal: bits of the log's line, which are not told here, say which
		return xid{"NVLink error", true, true}, true
	case 151:
		return bad("key rotation failed: the machine must be restarted")
	case 154:
		// xidFault's caller knows which
		return xid{text: "the driver recommends another recovery action, see nvidia-smi -q"}, true
	case 155:
		return bad("NVLink was taken down by the driver")
	case 156:
		return bad("a failing part was taken out of use: the GPU must be reset")
	case 157, 161:
		return app("the driver could not take a failing part out of use")
	case 158:
		return bad("fatal timeout")
	case 159:
		return app("an error on the chip-to-chip link that carried no data")
	case 160:
		return app("the driver took a memory channel out of use")
	case 162, 163, 164, 165:
		return app("power smoothing of the board changed")
	case 166, 170:
		return app("NVLink error of confidential computing")
	case 167:
		return bad("fatal timeout of PCIe")
	case 168:
		return app("less memory than the board has, because of errors while ECC is off")
	case 171:
		return app("uncorrectable DRAM error")
	case 172:
		return app("uncorrectable SRAM error")
	case 173:
		return bad("the chip-to-chip link failed")
	}
	return xid{}, false
}

// unknownXID is what NVML gives for an error that it has no number of.
const unknownXID = 999

// xidFault is the fault of one error of that number. instance is the GPU instance that it is of, -1 for the whole GPU.
// recovery is what the driver says must be done with the GPU now.
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

// recovery is what the driver says must be done with a GPU: NVML's GPU recovery action.
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

// fault gives what an action says of the GPU; ok is false where there is nothing to do.
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
	case recoveryDrainAndReset: // what runs may end: its memory is sound
		f.Text, f.Fatal = "the driver says that the GPU should be reset when its work has ended", false
	default:
		f.Text = fmt.Sprintf("the driver recommends recovery action %d", int(r))
	}
	return f, true
}
