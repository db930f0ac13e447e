package manage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"gbatch/internal/acctmgr"
)

// flatFile runs "dump [cluster=]NAME [file=]FILE" and "load [file=]FILE [clean] [cluster=NAME]"; - is standard output
// or input.
func (m *manage) flatFile(verb string, words []string) error {
	cluster, file, clean := "", "", false
	for _, w := range words {
		key, value, named := strings.Cut(w, "=")
		switch key = strings.ToLower(key); {
		case named && strings.HasPrefix("clusters", key) && key != "":
			cluster = value
		case named && strings.HasPrefix("file", key) && key != "":
			file = value
		case named:
			return fmt.Errorf(" Unknown option: %s\n %s takes cluster=, file=%s", w, verb,
				map[bool]string{true: " and clean"}[verb == "load"])
		case verb == "load" && key == "clean":
			clean = true
		case verb == "dump" && cluster == "":
			cluster = w
		case file == "":
			file = w
		default:
			return fmt.Errorf(" Unknown option: %s", w)
		}
	}
	if verb == "load" && file == "" {
		return errors.New(" load what? gacctmgr load file=FILE [clean]")
	}
	if verb == "load" && m.readOnly {
		return errors.New("Can't run this command in readonly mode.")
	}
	c, err := m.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	facts, err := acctmgr.Ask(c.Stream, c.Decode)
	if err != nil {
		return err
	}
	if verb == "dump" {
		if cluster != "" && !strings.EqualFold(cluster, facts.Cluster) {
			return fmt.Errorf(" This cluster is %s, there is no %s here", facts.Cluster, cluster)
		}
		return m.dump(facts, file)
	}
	text, err := m.readFlat(file)
	if err != nil {
		return err
	}
	err = m.carryOut(c, facts, func(f *acctmgr.Facts) (*acctmgr.Plan, error) {
		plan, err := acctmgr.Load(f, text, cluster, clean)
		if err != nil {
			return nil, fmt.Errorf(" %s:%w", file, err)
		}
		return plan, nil
	})
	if errors.Is(err, errNothing) {
		return nil // everything is as in the file
	}
	return err
}

func (m *manage) dump(facts *acctmgr.Facts, file string) error {
	text := acctmgr.Dump(facts)
	if file == "-" {
		_, err := io.WriteString(m.Stdout, text)
		return err
	}
	if file == "" {
		file = facts.Cluster + ".cfg"
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	if !m.quiet {
		fmt.Fprintf(m.Stdout, " Dumped %d accounts and %d users of cluster %s to %s\n", len(facts.Accounts), len(facts.Users),
			facts.Cluster, file)
	}
	return nil
}

func (m *manage) readFlat(file string) (string, error) {
	in := m.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return "", err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, acctmgr.MaxFlatBytes+1))
	if err == nil && len(data) > acctmgr.MaxFlatBytes {
		err = fmt.Errorf(" %s is larger than %d bytes", file, acctmgr.MaxFlatBytes)
	}
	return string(data), err
}
