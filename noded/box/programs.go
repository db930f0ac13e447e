package box

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/noded/asuser"
	"gbatch/noded/boxenv"
	"gbatch/noded/container"
	"gbatch/noded/image"
)

// programs.go finds programs in a container, as a shell there would: by the PATH of the process, with its user's
// rights.

// Find gives the programs of some names. One that is not there gets a path that says so when it is run.
func Find(m *Made, u *image.User, dir string, env, names []string) ([]string, error) {
	search := boxenv.Path
	for _, e := range env {
		if v, is := strings.CutPrefix(e, "PATH="); is {
			search = v
		}
	}
	out := make([]string, len(names))
	err := container.In(m.Space, func() error {
		if err := asuser.OnThread(u.UID, u.GID, u.Groups); err != nil {
			return err
		}
		for i, name := range names {
			out[i] = find(name, dir, search)
		}
		return nil
	})
	return out, err
}

func find(name, dir, search string) string {
	in := func(d string) string {
		if !path.IsAbs(d) {
			d = path.Join(dir, d)
		}
		return path.Join(d, name)
	}
	if path.IsAbs(name) {
		return name
	}
	if strings.Contains(name, "/") {
		return in(".")
	}
	for _, d := range strings.Split(search, ":") {
		full := in(d)
		var st unix.Stat_t
		if unix.Stat(full, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG &&
			unix.Faccessat(unix.AT_FDCWD, full, unix.X_OK, unix.AT_EACCESS) == nil {
			return full
		}
	}
	return "/" + name
}
