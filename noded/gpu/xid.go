package gpu

import "fmt"

// xid.go says what the driver's error numbers mean for a GPU. Source: NVIDIA's "XID Errors", the catalogue of XIDs and its column
// of immediate actions. Fatal are those whose action is to reset the GPU, restart the machine or have the hardware looked at. Those whose
// action is to start the application again are not: a job made them, or the driver contained them, and the next job is safe.

type xid struct {
	text  string
	fatal bool
}

// xidOf gives the catalogue's part that data centre GPUs report. Numbers that are not in it are told and not fatal: most are
// of channels, that is of one process.
func xidOf(code int) (xid, bool) {
	switch code {
	case 8:
		return xid{"a channel stopped: the application is ended", false}, true
	case 11, 32:
		return xid{"an invalid or corrupted push buffer: most often the application", false}, true
	case 13:
		return xid{"graphics engine exception: most often the application", false}, true
	case 31:
		return xid{"memory page fault: most often the application", false}, true
	case 38:
		return xid{"driver firmware error", false}, true
	case 39, 40, 41:
		return xid{"copy engine exception", false}, true
	case 43:
		return xid{"the application's channel was stopped by an error of its own", false}, true
	case 44:
		return xid{"graphics engine fault during a context switch", true}, true
	case 45:
		return xid{"the application's channels were cleaned up", false}, true
	case 46:
		return xid{"the GPU stopped processing", true}, true
	case 48:
		return xid{"double-bit ECC error", true}, true
	case 54:
		return xid{"auxiliary power is not connected to the board", true}, true
	case 61, 62:
		return xid{"internal micro-controller halt", true}, true
	case 63:
		return xid{"a memory page or row is to be replaced at the next reset", false}, true
	case 64:
		return xid{"a memory page or row could not be replaced", true}, true
	case 66:
		return xid{"illegal access by the driver", true}, true
	case 68:
		return xid{"video decoder exception: most often the application", false}, true
	case 69:
		return xid{"graphics engine class error: most often the application", false}, true
	case 74:
		return xid{"NVLink error", true}, true
	case 79:
		return xid{"the GPU has fallen off the bus", true}, true
	case 92:
		return xid{"a high rate of single-bit ECC errors", true}, true
	case 94:
		return xid{"contained memory error: only the application is harmed", false}, true
	case 95:
		return xid{"uncontained memory error", true}, true
	case 109:
		return xid{"timeout of a context switch", true}, true
	case 110:
		return xid{"security fault", true}, true
	case 119:
		return xid{"timeout of the GPU's system processor (GSP)", true}, true
	case 120:
		return xid{"error of the GPU's system processor (GSP)", true}, true
	case 121:
		return xid{"corrected error on the chip-to-chip link", false}, true
	case 122, 123:
		return xid{"the GPU's power controller does not answer", true}, true
	case 136:
		return xid{"NVLink training failed", true}, true
	case 137:
		return xid{"NVLink privilege error: most often the application", false}, true
	case 140:
		return xid{"unrecovered ECC error", true}, true
	case 143:
		return xid{"the GPU could not be initialized", true}, true
	case 144, 145, 146, 147, 148, 149, 150:
		return xid{"NVLink error", true}, true
	case 154:
		return xid{"the driver recommends another recovery action, see nvidia-smi -q", false}, true
	case 155, 156, 160:
		return xid{"the driver took a part out of use", false}, true
	case 157, 161:
		return xid{"the driver could not take a failing part out of use", true}, true
	case 158, 167:
		return xid{"fatal timeout", true}, true
	case 171:
		return xid{"uncorrectable DRAM error", false}, true
	case 172:
		return xid{"uncorrectable SRAM error", false}, true
	}
	return xid{}, false
}

// unknownXID is what NVML gives for an error that it has no number of.
const unknownXID = 999

// xidFault is the fault of one error of that number. instance is the GPU instance that it is of, -1 for the whole GPU.
func xidFault(code, instance int) Fault {
	f := Fault{Kind: FaultXID, Code: code}
	x, ok := xidOf(code)
	switch {
	case ok:
		f.Text, f.Fatal = x.text, x.fatal
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
