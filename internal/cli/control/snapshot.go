package control

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gbatch/internal/proto"
	"gbatch/internal/snapfile"
)

// snapshot saves the cluster's state into a file, or says what is in such a file.
func (c *control) snapshot(words []string) error {
	if len(words) != 2 {
		return errSnapshot
	}
	switch strings.ToLower(words[0]) {
	case "save":
		return c.saveSnapshot(words[1])
	case "inspect":
		return c.inspectSnapshot(words[1])
	case "restore":
		return fmt.Errorf("a snapshot is restored where a controller is to run, while it is stopped: gctld --restore %s",
			words[1])
	}
	return errSnapshot
}

var errSnapshot = errors.New("snapshot save FILE, or snapshot inspect FILE; gctld --restore FILE restores one")

func (c *control) path(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(c.Dir, name)
}

// saveSnapshot writes the leader's state and checks what was written before the file gets its name.
func (c *control) saveSnapshot(name string) error {
	var h snapfile.Header
	size := int64(0)
	err := c.dumpTo(name, proto.DumpSnapshot, func(f *os.File) (err error) {
		h, size, err = checkSnapshot(f)
		if errors.Is(err, snapfile.ErrNot) {
			return errors.New("the controller is of a version that saves no snapshots")
		}
		return err
	})
	if err != nil {
		return err
	}
	if !c.quiet {
		fmt.Fprintf(c.Stdout, "snapshot of cluster %s written to %s: index %d, epoch %d, %d jobs, %d bytes\n",
			h.Cluster, name, h.Index, h.Epoch, h.Jobs, size)
	}
	return nil
}

// checkSnapshot reads all of a file.
func checkSnapshot(f *os.File) (snapfile.Header, int64, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return snapfile.Header{}, 0, err
	}
	r, err := snapfile.NewReader(f)
	if err != nil {
		return snapfile.Header{}, 0, err
	}
	n, err := r.Check()
	return r.Header, n, err
}

func (c *control) inspectSnapshot(name string) error {
	f, err := os.Open(c.path(name))
	if err != nil {
		return err
	}
	h, size, err := checkSnapshot(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	line := func(key, format string, args ...any) {
		fmt.Fprintf(c.Stdout, "%-12s = %s\n", key, fmt.Sprintf(format, args...))
	}
	line("Cluster", "%s (history %016x)", h.Cluster, h.Instance)
	line("Saved", "%s by controller %s, gbatch %s", time.UnixMilli(h.SavedMS).Format("2006-01-02T15:04:05"), h.Controller,
		h.Version)
	line("Index", "%d", h.Index)
	line("Epoch", "%d", h.Epoch)
	line("NextJob", "%d", h.NextJob)
	line("Jobs", "%d (%d pending, %d running)", h.Jobs, h.Pending, h.Running)
	line("Nodes", "%d", h.Nodes)
	line("Accounts", "%d, %d users", h.Accounts, h.Users)
	line("Reservations", "%d", h.Reservations)
	line("Records", "next %d; %d wait for gdbd, %d are kept to be sent again", h.NextRecord, h.Waiting, h.Kept)
	line("Bytes", "%d, all checksums are right", size)
	return nil
}

// dumpTo writes a dump into a file that only its owner can read. It gets its name when it is complete and, if check is
// not nil, right.
func (c *control) dumpTo(name string, what proto.DumpKind, check func(*os.File) error) error {
	cl, err := c.ask()
	if err != nil {
		return err
	}
	file := c.path(name)
	out, err := os.CreateTemp(filepath.Dir(file), ".gbatch-dump-") // made with mode 0600
	if err != nil {
		return fmt.Errorf("write the dump: %w", err)
	}
	var w io.Writer = out
	finish := func() error { return nil }
	if what == proto.DumpForSim {
		z := gzip.NewWriter(out)
		w, finish = z, z.Close
	}
	n := 0
	err = cl.Stream(proto.KindDump, &proto.DumpRequest{What: what}, func(body []byte) error {
		var part proto.DumpChunk
		if err := cl.Decode(body, &part); err != nil {
			return err
		}
		n += len(part.Data)
		_, err := w.Write(part.Data)
		return err
	})
	if err == nil && n == 0 {
		err = fmt.Errorf("the controller sent nothing: %w", io.ErrUnexpectedEOF)
	}
	if err = errors.Join(err, finish()); err == nil && check != nil {
		err = check(out)
	}
	if err = errors.Join(err, out.Sync(), out.Close()); err == nil {
		err = os.Rename(out.Name(), file)
	}
	if err != nil {
		_ = os.Remove(out.Name()) // the error before says more
	}
	return err
}

// dump writes the leader's state into a file of the caller's, for `gbatch sim --from-state`, or as JSON to standard
// output. It holds everybody's scripts and environments: operators only, and a file that nobody else can read.
func (c *control) dump(words []string) error {
	isJSON := c.json != ""
	if len(words) == 0 || len(words) > 2 || words[0] == "" || !strings.HasPrefix("state", strings.ToLower(words[0])) ||
		len(words) == 1 && !isJSON {
		return fmt.Errorf("dump what? dump state FILE")
	}
	switch {
	case isJSON && len(words) == 1:
		return c.printJSON()
	case isJSON:
		return c.dumpTo(words[1], proto.DumpJSON, nil)
	}
	if err := c.dumpTo(words[1], proto.DumpForSim, nil); err != nil {
		return err
	}
	if !c.quiet {
		fmt.Fprintf(c.Stdout, "state written to %s; gbatch sim --from-state %s runs it forward\n", words[1], words[1])
	}
	return nil
}

// printJSON prints the state as it comes.
func (c *control) printJSON() error {
	cl, err := c.ask()
	if err != nil {
		return err
	}
	first, out := true, c.ListOut()
	return cl.Stream(proto.KindDump, &proto.DumpRequest{What: proto.DumpJSON}, func(body []byte) error {
		var part proto.DumpChunk
		if err := cl.Decode(body, &part); err != nil {
			return err
		}
		if first && len(part.Data) > 0 && !bytes.HasPrefix(part.Data, []byte("{")) {
			return fmt.Errorf("the controller is of a version that writes no JSON")
		}
		first = first && len(part.Data) == 0
		_, err := out.Write(part.Data)
		return err
	})
}
