package env

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"gbatch/internal/proto"
)

// optionhelp.go answers options whose value is help: --gres=help, --hint=help, --cpu-bind=help, --mem-bind=help.

// ErrGresHelp is the error of --gres=help: what can be asked for is the cluster's.
var ErrGresHelp = errors.New("help about generic resources asked for")

// Ways is the error of an option whose value is help: Text is printed to standard output.
type Ways struct{ Text string }

func (w *Ways) Error() string { return w.Text }

// listGres prints which generic resources a job can ask for.
func (e *Env) listGres() int {
	c, err := e.Connect()
	if err != nil {
		e.Errorf("%s", Text(err))
		return e.Failed(1)
	}
	defer c.Close()
	names := map[string]bool{}
	err = c.Stream(proto.KindNodes, &proto.NodesRequest{}, func(body []byte) error {
		var chunk proto.NodesChunk
		if err := c.Decode(body, &chunk); err != nil {
			return err
		}
		for _, n := range chunk.Nodes {
			for _, g := range n.Node.Def.Gres {
				names[g.Name] = true
			}
		}
		return nil
	})
	if err != nil {
		e.Errorf("%s", Text(err))
		return e.Failed(1)
	}
	fmt.Fprintln(e.Stdout, "Valid gres options are:")
	for _, name := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(e.Stdout, "%s[[:type]:count]\n", name)
	}
	return 0
}
