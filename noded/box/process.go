package box

import (
	"slices"

	wish "gbatch/internal/model/container"
	"gbatch/noded/boxenv"
	"gbatch/noded/image"
)

// process.go says how a process begins in a container: its environment, arguments and directory.

// Environ gives the environment of a process.
func Environ(job []string, m *Made, w *wish.Wish) []string {
	libs, programs := "", ""
	if m.Driver {
		libs, programs = boxenv.DriverLibs, boxenv.DriverPrograms
	}
	return boxenv.Environ(job, m.Config.Env, w.Env, libs, programs)
}

// Arguments gives the arguments of a process: the image's entry point first, if it is wanted.
func Arguments(argv []string, c *image.Config, w *wish.Wish) []string {
	if !w.Entry.Or(false) || len(c.Entrypoint) == 0 {
		return argv
	}
	return append(slices.Clone(c.Entrypoint), argv...)
}

// Dir gives the directory in which processes begin.
func Dir(c *image.Config, w *wish.Wish) string {
	switch {
	case w.WorkDir != "":
		return w.WorkDir
	case c.WorkDir != "":
		return c.WorkDir
	}
	return "/"
}
