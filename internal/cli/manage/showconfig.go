package manage

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"gbatch/internal/client"
	"gbatch/internal/clustertext"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/version"
)

// clusterKeys are the keys, beside those that begin with Accounting, of the first part of show configuration.
var clusterKeys = []string{"ClusterName", "MaxDBDMsgs", "MessageTimeout", "PrivateData", "SlurmUser", "SLURM_CONF",
	"TrackWCKey"}

// showConfig prints what the configuration says about accounting: first the cluster's side, then gdbd's.
func (m *manage) showConfig(c *client.Client) error {
	var reply proto.ConfigReply
	if err := c.Call(proto.KindConfig, &proto.Empty{}, &reply); err != nil {
		return err
	}
	values := map[string]string{}
	var cluster, dbd []model.KV
	for _, k := range reply.Config.Show {
		values[k.Key] = k.Value
		switch {
		case strings.HasPrefix(k.Key, "Accounting"), slices.Contains(clusterKeys, k.Key):
			cluster = append(cluster, k)
		case strings.HasPrefix(k.Key, "Dbd"):
			dbd = append(dbd, k)
		}
	}
	cluster = append(cluster, model.KV{Key: "SLURM_VERSION", Value: version.Slurm})
	// What tools ask for: a new user has a default account, and gdbd keeps usage by wckeys as the cluster does.
	dbd = append(dbd, model.KV{Key: "AllowNoDefAcct", Value: "No"},
		model.KV{Key: "TrackWCKey", Value: values["TrackWCKey"]},
		model.KV{Key: "DbdHost", Value: values["AccountingStorageHost"]},
		model.KV{Key: "DbdBackupHost", Value: values["AccountingStorageBackupHost"]},
		model.KV{Key: "DbdPort", Value: values["AccountingStoragePort"]},
		model.KV{Key: "PrivateData", Value: values["PrivateData"]},
		model.KV{Key: "SLURMDBD_CONF", Value: values["SLURM_CONF"]},
		model.KV{Key: "SLURMDBD_VERSION", Value: version.Slurm})
	fmt.Fprintf(m.Stdout, "Configuration data as of %s\n", m.Stamp(reply.Now, "Unknown"))
	for i, list := range [][]model.KV{cluster, dbd} {
		if i > 0 {
			fmt.Fprint(m.Stdout, "\nSlurmDBD configuration:\n")
		}
		slices.SortStableFunc(list,
			func(a, b model.KV) int { return strings.Compare(strings.ToLower(a.Key), strings.ToLower(b.Key)) })
		for _, k := range list {
			fmt.Fprintf(m.Stdout, "%-27s = %s\n", k.Key, k.Value)
		}
	}
	return nil
}

// showStats prints what the leader has answered about accounting.
func (m *manage) showStats(c *client.Client) error {
	var r proto.DiagReply
	if err := c.Call(proto.KindDiag, &proto.Empty{}, &r); err != nil {
		return err
	}
	_, err := io.WriteString(m.Stdout, clustertext.AccountingStatisticsText(&r))
	return err
}

// clear resets these statistics, and with them those of gdiag, as gdiag --reset does.
func (m *manage) clear(words []string) error {
	if len(words) != 1 || len(words[0]) < 2 || !strings.HasPrefix("stats", strings.ToLower(words[0])) {
		return errors.New(" only statistics can be cleared: write clear stats")
	}
	if m.readOnly {
		return errors.New("Can't run this command in readonly mode.")
	}
	c, err := m.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Call(proto.KindDiagReset, &proto.Empty{}, new(proto.DiagReply))
}
