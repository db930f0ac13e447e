package client

import (
	"os"
	"path/filepath"
	"time"
)

// leftFor is how long a request waits for a daemon that has just ended: it may be starting anew, as when it is
// upgraded.
const leftFor = 3 * time.Second

// hasLeft reports whether a daemon has removed its socket within leftFor, as it does when it ends. On a host where none
// has run for longer, a request fails at once. A socket may be a link to one elsewhere.
func hasLeft(dir string) bool {
	at := []string{dir}
	if socks, err := Sockets(dir); err == nil {
		for _, s := range socks {
			if to, err := os.Readlink(s); err == nil {
				at = append(at, filepath.Dir(to))
			}
		}
	}
	for _, d := range at {
		st, err := os.Stat(d)
		if err != nil {
			continue
		}
		if age := time.Since(st.ModTime()); age > -leftFor && age < leftFor { // the kernel's stamps are a little behind
			return true
		}
	}
	return false
}
