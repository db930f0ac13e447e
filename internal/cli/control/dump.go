package control

import (
	"bytes"
	"fmt"
	"strings"

	"gbatch/internal/proto"
)

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
