package fence

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gbatch/internal/rpc/pki"
	"gbatch/noded/shim"
)

// Main is to be called first thing in the main of gnoded. When the program is running to give a verdict, handled is
// true: exit with that status.
func Main(args []string, stdout, stderr io.Writer) (status int, handled bool) {
	if len(args) != 3 || args[1] != Word {
		return 0, false
	}
	v, err := judge(args[2])
	if err != nil {
		fmt.Fprintf(stderr, "gnoded %s: %v\n", Word, err)
		return 1, true
	}
	why := strings.Join(strings.Fields(v.Why), " ") // one line
	if v.Cut {
		_, err = fmt.Fprintf(stdout, "cut %d %s\n", v.At.Nanoseconds(), why)
	} else {
		_, err = fmt.Fprintf(stdout, "keep %s\n", why)
	}
	if err != nil {
		return 1, true
	}
	return 0, true
}

func judge(spool string) (Verdict, error) {
	var f facts
	b, err := os.ReadFile(filepath.Join(spool, factsFile))
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err != nil {
		return Verdict{}, fmt.Errorf("read the list of witnesses: %w", err)
	}
	cfg, err := pki.Load(f.PKI, pki.RoleNode, f.Node)
	if err != nil {
		return Verdict{}, err
	}
	limit := time.Duration(f.LimitMS) * time.Millisecond
	asked := shim.Uptime()
	ctx, cancel := context.WithTimeout(context.Background(), Ask(limit))
	defer cancel()
	return Decide(asked, limit, askAll(ctx, cfg, f.list())), nil
}
