package deadletter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Bounds of a Box.
const (
	MaxLetters = 256
	MaxBytes   = 64 << 20 // of all of them
	suffix     = ".json"
)

// ErrFull says that nothing more is kept.
var ErrFull = errors.New("as many refused records are kept as may be")

// Box is a directory of records.
type Box struct {
	Dir string

	mu sync.Mutex
}

// Put keeps a record under a name. One that is there already is replaced. The error is ErrFull or that of the disk.
func (b *Box) Put(name string, data []byte) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := os.MkdirAll(b.Dir, 0o700); err != nil {
		return err
	}
	n, bytes, err := b.look()
	switch {
	case err != nil:
		return err
	case n >= MaxLetters || bytes+int64(len(data)) > MaxBytes:
		return fmt.Errorf("%w: %d with %d bytes in %s", ErrFull, n, bytes, b.Dir)
	}
	tmp, err := os.CreateTemp(b.Dir, ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name()) // err says what is wrong
		}
	}()
	if _, err = tmp.Write(data); err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), filepath.Join(b.Dir, name+suffix)); err != nil {
		return err
	}
	dir, err := os.Open(b.Dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Look gives the number of the kept records, and their bytes.
func (b *Box) Look() (n int, bytes int64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.look()
}

func (b *Box) look() (n int, bytes int64, err error) {
	entries, err := os.ReadDir(b.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, 0, nil
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), suffix) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed just now
		}
		if err != nil {
			return n, bytes, err
		}
		n, bytes = n+1, bytes+info.Size()
	}
	return n, bytes, err
}
