package image

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gbatch/noded/asuser"
)

// login.go reads a user's credentials for a registry, as that user: those of enroot (a netrc), else those of docker and
// podman. Programs that give credentials (credHelpers) are not started.

const (
	maxLogin  = 1 << 20         // bytes of such a file
	loginTime = 5 * time.Second // for a home directory on a file server
)

// User is who asks for an image.
type User struct {
	UID, GID uint32
	Groups   []uint32
	Home     string
}

// login gives the credentials for a registry, "" without any.
func login(files *asuser.Places, u *User, registry string) (user, password string) {
	if u.Home == "" || !filepath.IsAbs(u.Home) {
		return "", ""
	}
	type pair struct{ user, password string }
	p, err := asuser.Within(files, u.UID, loginTime, func() (p pair, err error) {
		if err := asuser.Become(u.UID, u.GID, u.Groups); err != nil {
			return p, err
		}
		for _, f := range [...]struct {
			path string
			read func(text []byte, registry string) (user, password string)
		}{{".config/enroot/.credentials", fromNetrc}, {".docker/config.json", fromDocker},
			{".config/containers/auth.json", fromDocker}} {
			if text := readSome(filepath.Join(u.Home, f.path)); text != nil {
				if p.user, p.password = f.read(text, registry); p != (pair{}) {
					break
				}
			}
		}
		return p, nil
	})
	if err != nil { // it is asked without
		return "", ""
	}
	return p.user, p.password
}

// readSome reads a regular file with this thread's rights; nil if it can't.
func readSome(path string) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close() //nolint:errcheck // it was only read
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(f, maxLogin))
	if err != nil {
		return nil
	}
	return text
}

// names are the names under which a registry may stand in such a file.
func names(registry string) []string {
	if registry == "index.docker.io" {
		return []string{registry, "auth.docker.io", "docker.io", "registry-1.docker.io", "https://index.docker.io/v1/"}
	}
	return []string{registry, "https://" + registry, "http://" + registry}
}

// fromNetrc reads "machine NAME login USER password WORD". Variables in words are not filled in.
func fromNetrc(text []byte, registry string) (user, password string) {
	words := strings.Fields(string(text))
	for _, name := range names(registry) {
		for i, w := range words {
			if w != "machine" || i+1 >= len(words) || words[i+1] != name {
				continue
			}
			user, password = "", ""
			for k := i + 2; k+1 < len(words) && words[k] != "machine"; k += 2 {
				switch words[k] {
				case "login":
					user = words[k+1]
				case "password":
					password = words[k+1]
				}
			}
			return user, password
		}
	}
	return "", ""
}

// fromDocker reads "auths" of docker's configuration.
func fromDocker(text []byte, registry string) (user, password string) {
	var c struct {
		Auths map[string]struct {
			Auth     string `json:"auth"`
			Username string `json:"username"`
			Password string `json:"password"`
		} `json:"auths"`
	}
	if json.Unmarshal(text, &c) != nil {
		return "", ""
	}
	for _, name := range names(registry) {
		a, has := c.Auths[name]
		if !has {
			continue
		}
		if plain, err := base64.StdEncoding.DecodeString(a.Auth); err == nil && a.Auth != "" {
			user, password, _ = strings.Cut(string(plain), ":")
			return user, password
		}
		return a.Username, a.Password
	}
	return "", ""
}
