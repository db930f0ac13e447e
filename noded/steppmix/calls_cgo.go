//go:build cgo && linux

package steppmix

// calls_cgo.go is what libpmix calls, on its own thread.

// #include <stddef.h>
// #include <stdint.h>
import "C"

import (
	"unsafe"

	"gbatch/internal/pmix"
)

// serving is the process's one server.
var serving *server

//export gbatchConnected
func gbatchConnected(rank C.uint32_t, fn, data unsafe.Pointer) C.int {
	serving.tell(&pmix.Message{Kind: pmix.Connected, Rank: int32(rank)})
	callOf(fn, data).done()
	return C.int(pmix.Success)
}

//export gbatchFinalized
func gbatchFinalized(rank C.uint32_t, fn, data unsafe.Pointer) C.int {
	serving.tell(&pmix.Message{Kind: pmix.Finalized, Rank: int32(rank)})
	callOf(fn, data).done()
	return C.int(pmix.Success)
}

//export gbatchAbort
func gbatchAbort(rank C.uint32_t, status C.int, text *C.char, fn, data unsafe.Pointer) C.int {
	m := &pmix.Message{Kind: pmix.Abort, Rank: int32(rank), Status: int32(status)}
	if text != nil {
		m.Text = C.GoString(text)
		m.Text = m.Text[:min(len(m.Text), pmix.MaxText)]
	}
	serving.tell(m)
	callOf(fn, data).done()
	return C.int(pmix.Success)
}

//export gbatchFence
func gbatchFence(ranks *C.uint32_t, n C.size_t, blob unsafe.Pointer, size C.size_t, fn, data unsafe.Pointer) C.int {
	if size > pmix.MaxSpace {
		return C.int(pmix.ErrResource)
	}
	var of []int32
	for _, r := range unsafe.Slice(ranks, n) {
		of = append(of, int32(r))
	}
	return C.int(serving.fence(of, C.GoBytes(blob, C.int(size)), callOf(fn, data)))
}

//export gbatchAsk
func gbatchAsk(rank C.uint32_t, fn, data unsafe.Pointer) C.int {
	return C.int(serving.ask(int32(rank), callOf(fn, data)))
}

//export gbatchFound
func gbatchFound(id C.uint64_t, status C.int, blob unsafe.Pointer, size C.size_t) {
	if size > pmix.MaxAnswer {
		status, size = C.int(pmix.ErrResource), 0
	}
	serving.found(uint64(id), int32(status), C.GoBytes(blob, C.int(size)))
}

//export gbatchSpawn
func gbatchSpawn(rank C.uint32_t) {
	serving.tell(&pmix.Message{Kind: pmix.Note, Rank: int32(rank), Text: noSpawn})
}
