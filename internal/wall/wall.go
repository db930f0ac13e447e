// Package wall reads the clock that people and NTP set: what a host believes the time to be. It can
// jump. Waits and deadlines of a daemon use time.Now, whose differences can't. told.go has the time of
// another host.
//
// A test can build daemons whose clocks are wrong:
//
//	go build -ldflags "-X gbatch/internal/wall.skew=NAME" ./cmd/gnoded
//
// Such a daemon looks in the directory that the environment variable NAME has, and adds to each
// reading the seconds in the file that is named after its process (or in the file "all"). Released
// programs look at no file.
package wall

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// skew is the name of the environment variable with the directory of errors; "": the host's clock is taken as it is.
// Only the linker sets it.
var skew string

// Off is what has to be added to the host's clock: zero, but in a test's daemons.
func Off() time.Duration {
	if skew == "" {
		return 0
	}
	for _, name := range []string{strconv.Itoa(os.Getpid()), "all"} {
		text, err := os.ReadFile(filepath.Join(os.Getenv(skew), name))
		if err != nil {
			continue // no file: no error
		}
		s, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err != nil {
			continue // it is being written
		}
		return time.Duration(s) * time.Second
	}
	return 0
}

// Now gives the host's time.
func Now() time.Time { return time.Now().Add(Off()) }

// Milli gives it in milliseconds since 1970.
func Milli() int64 { return Now().UnixMilli() }
