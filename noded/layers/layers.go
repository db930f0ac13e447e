package layers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

const (
	pace     = 5 * time.Second  // between two counts, at least
	share    = 20               // and at least so many times what the last one took
	maxFiles = 4_000_000        // of one container
	maxTime  = 30 * time.Second // for one container
	blockLen = 512              // of Stat_t.Blocks
)

// Place is where a container writes.
type Place struct {
	Name string // the container's
	Dir  string // a directory of its user
}

// Use is what one container has written.
type Use struct {
	Name  string
	UID   uint32
	Bytes int64
	Vast  bool // it has more files than are counted
}

// Bound is the bound of a node's users.
type Bound struct {
	Limit int64 // bytes of all containers of one user; 0: there is none
	List  func() []Place
}

// Of counts the containers of a user.
func (b *Bound) Of(ctx context.Context, uid uint32) []Use {
	return b.count(ctx, func(u uint32) bool { return u == uid })
}

// count counts the containers whose users are wanted. One that goes meanwhile is left out.
func (b *Bound) count(ctx context.Context, wanted func(uid uint32) bool) (all []Use) {
	for _, p := range b.List() {
		st, err := os.Lstat(p.Dir)
		if err != nil || !st.IsDir() || ctx.Err() != nil {
			continue
		}
		u := Use{Name: p.Name, UID: st.Sys().(*syscall.Stat_t).Uid}
		if !wanted(u.UID) {
			continue
		}
		if u.Bytes, u.Vast, err = size(ctx, p.Dir, maxFiles, maxTime); err == nil {
			all = append(all, u)
		}
	}
	return all
}

// errVast ends a walk.
var errVast = errors.New("too many files")

// size gives the bytes that the files of a directory take. Names are resolved below it, so that a link that its user
// puts in the place of a directory leads nowhere else.
func size(ctx context.Context, dir string, most int, within time.Duration) (bytes int64, vast bool, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, false, err
	}
	defer root.Close() //nolint:errcheck // it was only read
	until, files := time.Now().Add(within), 0
	linked := map[uint64]bool{} // files with several names count once
	err = fs.WalkDir(root.FS(), ".", func(_ string, e fs.DirEntry, err error) error {
		if files++; files > most || files%1024 == 0 && time.Now().After(until) {
			return errVast
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return nil //nolint:nilerr // it has just been removed, or is no directory any more
		}
		info, err := e.Info()
		if err != nil {
			return nil //nolint:nilerr // as above
		}
		st := info.Sys().(*syscall.Stat_t)
		if st.Nlink > 1 && !info.IsDir() {
			if linked[st.Ino] {
				return nil
			}
			linked[st.Ino] = true
		}
		bytes += st.Blocks * blockLen
		return nil
	})
	if errors.Is(err, errVast) {
		return bytes, true, nil
	}
	return bytes, false, err
}

// Sum adds up what containers have written.
func Sum(all []Use) (bytes int64, vast bool) {
	for i := range all {
		bytes += all[i].Bytes
		vast = vast || all[i].Vast
	}
	return bytes, vast
}

// Refuses gives an error if a user has as much as the bound already, and may begin no other container.
func (b *Bound) Refuses(ctx context.Context, uid uint32) error {
	if b.Limit <= 0 {
		return nil
	}
	all := b.Of(ctx, uid)
	if bytes, vast := Sum(all); vast || bytes >= b.Limit {
		return fmt.Errorf("%s: it can start when some of them have ended, those with a --container-name with their job",
			b.story(all))
	}
	return nil
}

// story says how much the containers of a user hold.
func (b *Bound) story(all []Use) string {
	bytes, vast := Sum(all)
	if vast && bytes < b.Limit {
		return fmt.Sprintf("a container of yours has more files on this node than can be counted (%d)", maxFiles)
	}
	return fmt.Sprintf("your containers on this node have written %s, and may write %s together (ContainerUserSize)",
		text(bytes), text(b.Limit))
}

// text writes bytes as people would: 812M, 1.5G.
func text(n int64) string {
	for _, u := range []struct {
		at   int64
		name string
	}{{1 << 40, "T"}, {1 << 30, "G"}, {1 << 20, "M"}} {
		if n >= u.at {
			return strconv.FormatFloat(float64(n/(u.at/10))/10, 'f', -1, 64) + u.name
		}
	}
	return strconv.FormatInt(n>>10, 10) + "K"
}

// Over is a container that is to end, and why.
type Over struct {
	Use
	Why string
}

// Size is what it has written, for people.
func (o *Over) Size() string { return text(o.Bytes) }

// over gives the containers that have to end: of each user who is above the bound those that have written most, until
// the others are within it.
func (b *Bound) over(all []Use) (list []Over) {
	by := map[uint32][]Use{}
	for _, u := range all {
		by[u.UID] = append(by[u.UID], u)
	}
	for _, mine := range by {
		why := b.story(mine)
		left, _ := Sum(mine)
		slices.SortFunc(mine, func(x, y Use) int {
			return cmp.Or(boolTo(y.Vast)-boolTo(x.Vast), cmp.Compare(y.Bytes, x.Bytes), cmp.Compare(x.Name, y.Name))
		})
		for _, u := range mine {
			if left <= b.Limit && !u.Vast {
				break
			}
			list = append(list, Over{u, why})
			left -= u.Bytes
		}
	}
	slices.SortFunc(list, func(x, y Over) int { return cmp.Compare(x.Name, y.Name) })
	return list
}

func boolTo(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Run counts from time to time, and names the containers that have to end.
func (b *Bound) Run(ctx context.Context, end func([]Over)) {
	if b.Limit <= 0 {
		<-ctx.Done()
		return
	}
	wait := pace
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		began := time.Now()
		all := b.count(ctx, func(uint32) bool { return true })
		wait = max(pace, share*time.Since(began))
		if list := b.over(all); len(list) > 0 && ctx.Err() == nil {
			end(list)
		}
	}
}
