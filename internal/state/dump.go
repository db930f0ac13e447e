package state

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"

	"gbatch/internal/model"
)

// A dump is what `gcontrol dump state` writes and `gbatch sim --from-state` reads: one line with its format and moment,
// then a snapshot.

const (
	dumpMagic   = "gbatch-state"
	dumpFormat  = 1
	maxDumpLine = 256
)

// WriteDump writes the facts as of now; write comes from Freeze.
func WriteDump(w io.Writer, now model.Time, write func(io.Writer) error) error {
	if _, err := fmt.Fprintf(w, "%s %d %d\n", dumpMagic, dumpFormat, now); err != nil {
		return err
	}
	return write(w)
}

// ReadDump reads what WriteDump wrote.
func ReadDump(r io.Reader) (*State, model.Time, error) {
	br := bufio.NewReaderSize(r, 64<<10)
	line, err := br.ReadSlice('\n')
	f := strings.Fields(string(line[:min(len(line), maxDumpLine)]))
	if err != nil || len(f) != 3 || f[0] != dumpMagic {
		return nil, 0, fmt.Errorf("this is no dump of a cluster's state: gcontrol dump state FILE makes one")
	}
	if f[1] != strconv.Itoa(dumpFormat) {
		return nil, 0, fmt.Errorf("the dump has format %s, this version reads %d: use the gbatch that made it", f[1],
			dumpFormat)
	}
	now, err := strconv.ParseInt(f[2], 10, 64)
	if err != nil || now <= 0 {
		return nil, 0, fmt.Errorf("the dump says %q for its time: it is damaged, make a new one", f[2])
	}
	s := New()
	if err := s.Restore(br); err != nil {
		return nil, 0, err
	}
	return s, model.Time(now), nil
}
