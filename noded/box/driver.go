package box

import (
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"

	"gbatch/noded/boxenv"
)

// driver.go finds the GPU driver's libraries and programs on the node: they must be those of the kernel's driver, so an
// image can't have them. They are shown where images that are made for GPUs look for them.

const maxDriverFiles = 256

var (
	libDirs = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib"}
	libs    = []string{"libcuda.so*", "libcudadebugger.so*", "libnvidia-*.so*", "libnvcuvid.so*", "libnvoptix.so*"}
	tools   = []string{"nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control",
		"nvidia-cuda-mps-server"}
)

// DriverFile is a file of the driver, and where it is in a container: DriverLibs or DriverPrograms, and its name.
type DriverFile struct{ File, At string }

// DriverFiles gives the driver's files on this node, of root's alone.
func DriverFiles() []DriverFile {
	var out []DriverFile
	seen := map[string]bool{}
	add := func(file, at string) {
		real, err := filepath.EvalSymlinks(file)
		var st unix.Stat_t
		if err != nil || seen[at] || len(out) >= maxDriverFiles || unix.Stat(real, &st) != nil ||
			st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != 0 || st.Mode&0o022 != 0 {
			return
		}
		seen[at] = true
		out = append(out, DriverFile{real, at})
	}
	for _, dir := range libDirs {
		for _, pattern := range libs {
			files, _ := filepath.Glob(filepath.Join(dir, pattern)) // the patterns are right
			for _, file := range files {
				add(file, path.Join(boxenv.DriverLibs, path.Base(file)))
			}
		}
	}
	for _, tool := range tools {
		add("/usr/bin/"+tool, path.Join(boxenv.DriverPrograms, tool))
	}
	return out
}
