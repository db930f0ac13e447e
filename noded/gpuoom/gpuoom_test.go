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
		{"XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while", "RESOURCE_EXHAUSTED: Out of memory"},
		{"CUDA out of memory\n" + Mark + " its output says so\nTraceback: ValueError\n", ""},
		{Mark + " its output says CUDA out of memory\nexit 3\n", ""},
		{Mark + " its output says CUDA out of memory\nHIP out of memory\n", "HIP out of memory"},
	} {
		if got := Said([]byte(x.text)); got != x.want {
			t.Errorf("%q: %q, not %q", x.text, got, x.want)
		}
	}
	if got := Said([]byte(strings.Repeat("x", TailBytes) + "NPU out of memory")); got != "NPU out of memory" {
		t.Errorf("at the end: %q", got)
	}
}
