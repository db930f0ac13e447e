package gpuoom

import "bytes"

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
	"NPU out of memory", // PyTorch with CANN
	"XPU out of memory", // PyTorch with oneAPI
}

// Mark begins the line that gnoded adds to the output of a job that ran out of GPU memory. It and what stands before it
// are of an earlier run, which wrote to the same file.
const Mark = "gbatch: GPU out of memory:"

// Said gives the words that say that a GPU had too little memory, the last ones of several; "": there are none.
func Said(tail []byte) string {
	if at := bytes.LastIndex(tail, []byte(Mark)); at >= 0 {
		_, tail, _ = bytes.Cut(tail[at:], []byte("\n"))
	}
	last, said := -1, ""
	for _, w := range words {
		if at := bytes.LastIndex(tail, []byte(w)); at > last {
			last, said = at, w
		}
	}
	return said
}
