package control

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"gbatch/internal/proto"
)

// dump writes the leader's state into a file of the caller's, for `gbatch sim --from-state`. It holds everybody's
// scripts and environments: operators only, and a file that nobody else can read.
func (c *control) dump(words []string) error {
	if len(words) != 2 || !strings.HasPrefix("state", strings.ToLower(words[0])) || words[0] == "" {
		return fmt.Errorf("dump what? dump state FILE")
	}
	cl, err := c.ask()
	if err != nil {
		return err
	}
	file := words[1]
	if !filepath.IsAbs(file) {
		file = filepath.Join(c.Dir, file)
	}
	out, err := os.CreateTemp(filepath.Dir(file), ".gbatch-dump-") // made with mode 0600
	if err != nil {
		return fmt.Errorf("write the dump: %w", err)
	}
	z := gzip.NewWriter(out)
	n := 0
	err = cl.Stream(proto.KindDump, &proto.Empty{}, func(body []byte) error {
		var part proto.DumpChunk
		if err := proto.Decode(body, &part); err != nil {
			return err
		}
		n += len(part.Data)
		_, err := z.Write(part.Data)
		return err
	})
	if err == nil && n == 0 {
		err = fmt.Errorf("the controller sent nothing: %w", io.ErrUnexpectedEOF)
	}
	if err = errors.Join(err, z.Close(), out.Sync(), out.Close()); err == nil {
		err = os.Rename(out.Name(), file)
	}
	if err != nil {
		_ = os.Remove(out.Name()) // the error before says more
		return err
	}
	if !c.quiet {
		fmt.Fprintf(c.Stdout, "state written to %s; gbatch sim --from-state %s runs it forward\n", words[1], words[1])
	}
	return nil
}
