package control

import (
	"fmt"

	"gbatch/internal/cli/env"
	"gbatch/internal/clustertext"
	"gbatch/internal/proto"
)

// clusterConfig asks for the configuration in effect.
func (c *control) clusterConfig(what string) (*proto.ConfigReply, error) {
	cl, err := c.ask()
	if err != nil {
		return nil, err
	}
	var reply proto.ConfigReply
	if err := cl.Call(proto.KindConfig, &proto.Empty{}, &reply); err != nil {
		return nil, plain{fmt.Errorf("%s error: %s", what, env.Text(err))}
	}
	return &reply, nil
}

// showLicenses shows all licenses, or the named one.
func (c *control) showLicenses(name string) error {
	reply, err := c.clusterConfig("slurm_load_licenses")
	if err != nil {
		return err
	}
	if c.json != "" {
		return c.licensesJSON(reply, name)
	}
	list := clustertext.LicensesOf(reply, name)
	for i := range list {
		l := &list[i]
		sep := "\n    "
		if c.oneLine {
			sep = " "
		}
		fmt.Fprintf(c.Stdout, "LicenseName=%s%sTotal=%d Used=%d Free=%d Reserved=%d Remote=no\n", l.Name, sep, l.Count,
			l.Used, l.Free(), l.Reserved)
	}
	switch {
	case len(list) == 0 && name != "":
		//nolint:revive,staticcheck // scontrol's words
		return plain{fmt.Errorf("License name %s not found in the configuration.", name)}
	case len(list) == 0:
		fmt.Fprintln(c.Stdout, "No licenses configured in Slurm.")
	}
	return nil
}
