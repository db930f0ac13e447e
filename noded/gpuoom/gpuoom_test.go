package gpuoom

import (
	"strings"
	"testing"
)

func TestSaid(t *testing.T) {
	for _, x := range []struct{ text, want string }{
		{"", ""},
		{"Killed\nout of memory\n", ""},
		{"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0", "CUDA out of memory"},
		{"RuntimeError: CUDA error: out of memory\nCUDA kernel errors", "CUDA error: out of memory"},
		{"failed call to cuInit: CUDA_ERROR_OUT_OF_MEMORY: out of memory", "CUDA_ERROR_OUT_OF_MEMORY"},
		{"HIP out of memory. Tried", "HIP out of memory"},
		{"cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 17,179,869,184 bytes (allocated so far: 0 bytes).",
			"OutOfMemoryError: Out of memory allocating"},
		{"ResourceExhaustedError: OOM when allocating tensor with shape[8]", "OOM when allocating tensor"},
		{"MemoryError: std::bad_alloc: out_of_memory: CUDA error at: /rmm", "bad_alloc: out_of_memory"},
		{"XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while", "RESOURCE_EXHAUSTED: Out of memory"},
		{"CUDA out of memory\n" + Mark + " its output says so\nTraceback: ValueError\n", ""},
		{Mark + " its output says CUDA out of memory\nexit 3\n", ""},
		{Mark + " its output says CUDA out of memory\nHIP out of memory\n", "HIP out of memory"},
		{Note + " StepId=1.0: the step's output says CUDA out of memory; ask for more\n", ""},
		{"HIP out of memory\n" + Note + " the step's output says CUDA out of memory\nno\n", "HIP out of memory"},
	} {
		if got := Said([]byte(x.text)); got != x.want {
			t.Errorf("%q: %q, not %q", x.text, got, x.want)
		}
	}
	if got := Said([]byte(strings.Repeat("x", TailBytes) + "NPU out of memory")); got != "NPU out of memory" {
		t.Errorf("at the end: %q", got)
	}
}

// TestWatch: words are found wherever the parts of an output end, and forgotten when much follows.
func TestWatch(t *testing.T) {
	const text = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"
	for cut := range len(text) {
		var w Watch
		w.See([]byte("epoch 1\n" + text[:cut]))
		w.See([]byte(text[cut:]))
		if got := OfCode(w.Code()); got != "CUDA out of memory" {
			t.Errorf("cut at %d: %q", cut, got)
		}
	}
	var w Watch
	for range len(words) {
		w.See([]byte("out of mem"))
	}
	if w.Code() != 0 || OfCode(0) != "" || OfCode(1) != "" || OfCode(FirstCode+len(words)) != "" {
		t.Error("words that nobody has said")
	}
	w.See([]byte("HIP out of memory"))
	long := strings.Repeat("x", TailBytes/2)
	w.See([]byte(long))
	if got := OfCode(w.Code()); got != "HIP out of memory" {
		t.Errorf("near the end: %q", got)
	}
	w.See([]byte(long))
	w.See([]byte(long))
	if w.Code() != 0 {
		t.Error("what was said long before the end counts")
	}
	for _, x := range words {
		if len(x) >= longest {
			t.Errorf("%q is longer than what is kept", x)
		}
		if Said([]byte(x)) != x {
			t.Errorf("%q is not found: it has none of the stems", x)
		}
	}
}
