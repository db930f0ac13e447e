package gpuoom

import (
	"bytes"
	"slices"
)

// TailBytes is how much of the end of an output is looked at.
const TailBytes = 64 << 10

// words are what CUDA, HIP, CANN and the libraries above them print.
var words = [...]string{
	"CUDA out of memory",                // PyTorch
	"CUDA_ERROR_OUT_OF_MEMORY",          // the driver
	"torch.cuda.OutOfMemoryError",       // PyTorch before 2.5
	"torch.OutOfMemoryError",            // and since
	"CUDA error: out of memory",         // PyTorch, llama.cpp
	"cudaErrorMemoryAllocation",         // the runtime
	"cudaMalloc failed: out of memory",  // ggml
	"CUBLAS_STATUS_ALLOC_FAILED",        // cuBLAS
	"CUDNN_STATUS_ALLOC_FAILED",         // cuDNN
	"RESOURCE_EXHAUSTED: Out of memory", // JAX
	"HIP out of memory",                 // PyTorch with ROCm
	"hipErrorOutOfMemory",               // ROCm
	"HIP error: out of memory",
	"NPU out of memory",                          // PyTorch with CANN
	"XPU out of memory",                          // PyTorch with oneAPI
	"OutOfMemoryError: Out of memory allocating", // CuPy
	"OOM when allocating tensor",                 // TensorFlow
	"cudaMalloc retry failed: out of memory",     // MXNet
	"bad_alloc: out_of_memory",                   // RMM: RAPIDS, cuDF
	"Cuda failure 2 'out of memory'",             // NCCL
	"Cuda failure 'out of memory'",               // NCCL before 2.19
}

// Mark begins the line that gnoded adds to the output of a job that ran out of GPU memory. It and what stands before it
// are of an earlier run, which wrote to the same file.
const Mark = "gbatch: GPU out of memory:"

// Note begins the line that grun prints about a step that ran out of GPU memory. What it quotes is not taken for what a
// program says.
const Note = "slurmstepd: error: GPU out of memory:"

// Said gives the words that say that a GPU had too little memory, the last ones of several; "": there are none.
func Said(tail []byte) string {
	if at := bytes.LastIndex(tail, []byte(Mark)); at >= 0 {
		_, tail, _ = bytes.Cut(tail[at:], []byte("\n"))
	}
	k, at := last(tail)
	for k >= 0 {
		line := tail[bytes.LastIndexByte(tail[:at], '\n')+1 : at]
		if !bytes.Contains(line, []byte(Note)) {
			return words[k]
		}
		tail = tail[:at-len(line)]
		k, at = last(tail)
	}
	return ""
}

// stems are such that each of the words has one of them: a text without them is passed over quickly.
var stems = [...]string{"ut of memory", "OUT_OF_MEMORY", "OutOfMemory", "MemoryAllocation", "ALLOC_FAILED",
	"OOM when", "out_of_memory"}

// last finds the last of these words: which it is, -1 for none, and where.
func last(text []byte) (k, at int) {
	k, at = -1, -1
	if !slices.ContainsFunc(stems[:], func(s string) bool { return bytes.Contains(text, []byte(s)) }) {
		return k, at
	}
	for i, w := range words {
		if p := bytes.LastIndex(text, []byte(w)); p > at {
			k, at = i, p
		}
	}
	return k, at
}
