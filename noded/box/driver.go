package box

import (
	"io"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/rootfile"
	"gbatch/noded/boxenv"
)

// driver.go finds the GPU driver's libraries and programs on the node: they must be those of the kernel's driver, so an
// image can't have them. They are shown where images that are made for GPUs look for them.

const maxDriverFiles = 256

var (
	libDirs = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib",
		boxenv.DriverLibs, "/usr/local/nvidia/lib"}
	toolDirs = []string{"/usr/bin", "/usr/local/bin", boxenv.DriverPrograms}

	libs  = []string{"libcuda.so*", "libcudadebugger.so*", "libnvidia-*.so*", "libnvcuvid.so*", "libnvoptix.so*"}
	tools = []string{"nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control",
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
	for _, dir := range append(libDirs[:len(libDirs):len(libDirs)], loaderDirs("/etc/ld.so.conf", 0)...) {
		for _, pattern := range libs {
			files, _ := filepath.Glob(filepath.Join(dir, pattern)) // the patterns are right
			for _, file := range files {
				add(file, path.Join(boxenv.DriverLibs, path.Base(file)))
			}
		}
	}
	for _, dir := range toolDirs {
		for _, tool := range tools {
			add(filepath.Join(dir, tool), path.Join(boxenv.DriverPrograms, tool))
		}
	}
	return out
}

// loaderDirs gives the directories in which the dynamic loader looks for libraries beside its own, as ldconfig reads
// them from a file: a driver that is installed by hand, or on a mount of its own, is named there.
func loaderDirs(file string, depth int) []string {
	const deepest, most = 4, 64 << 10 // files that include each other; bytes of one
	f, err := rootfile.Readable(file, 0)
	if err != nil || depth > deepest {
		return nil // a machine without such a file has its libraries in the usual places
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return nil
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		switch words := strings.Fields(line); {
		case len(words) == 1 && filepath.IsAbs(words[0]):
			out = append(out, words[0])
		case len(words) > 1 && words[0] == "include":
			for _, pattern := range words[1:] {
				if !filepath.IsAbs(pattern) {
					pattern = filepath.Join(filepath.Dir(file), pattern)
				}
				files, _ := filepath.Glob(pattern) // a wrong pattern names no file
				for _, f := range files {
					out = append(out, loaderDirs(f, depth+1)...)
				}
			}
		}
	}
	return out
}
