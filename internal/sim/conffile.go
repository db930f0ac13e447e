package sim

import (
	"os"

	"gbatch/internal/conf"
)

// loadConf reads the configuration in a directory or a file.
func loadConf(path string) (*conf.Config, []conf.Problem) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return conf.Load(path)
	}
	return conf.LoadFile(path)
}
