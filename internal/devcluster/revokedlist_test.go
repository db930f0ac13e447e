package devcluster_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/ctld"
	"gbatch/ctld/issue"
	"gbatch/internal/devcluster"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/rpc/pki"
)

// TestRestoreForgetsNoRevocation: a state from before a host was stolen takes neither its certificate nor its users'
// tokens: by the list in PKIDir, or, on a new machine, by the one that is named. Without any it says so.
func TestRestoreForgetsNoRevocation(t *testing.T) {
	c := &certCluster{devcluster.Start(t, devcluster.Options{Nodes: 1, HTTP: true}), t}
	r := &runs{c.Cluster, t}
	thief := filepath.Join(t.TempDir(), "pki")
	must(t, c.joinAs(c.token(pki.RoleLogin, "lg1", 600), pki.RoleLogin, "lg1", thief))
	cl := c.Client()
	must(t, cl.Call(proto.KindEditTokens, &proto.EditTokensRequest{Revoke: []string{"bin"}}, &proto.EditTokensReply{}))
	old := r.save()
	c.revoke(model.CertRevoked{Role: pki.RoleLogin, Name: "lg1", Why: "stolen"})
	must(t, cl.Call(proto.KindEditTokens, &proto.EditTokensRequest{NewKey: true}, &proto.EditTokensReply{}))
	var key proto.EditTokensReply
	must(t, cl.Call(proto.KindEditTokens, &proto.EditTokensRequest{Export: true}, &key))
	must(t, cl.Call(proto.KindEditTokens, &proto.EditTokensRequest{Revoke: []string{"daemon"}}, &proto.EditTokensReply{}))
	cl.Close()
	c.Wait("the key's file", func() error {
		have, err := os.ReadFile(filepath.Join(c.Dir, "pki", issue.TokenFile))
		if err == nil && !bytes.Equal(have, key.Key) {
			err = errors.New("it has another key")
		}
		return err
	})
	list := filepath.Join(c.Dir, "pki", issue.RecordFile)
	record, err := os.ReadFile(list)
	must(t, err)
	restore := func(revoked string) string {
		t.Helper()
		c.StopDaemon("ctld-ctl1")
		var b bytes.Buffer
		s := ctld.Start{Conf: c.Conf, Name: "ctl1", Restore: old, Replace: true, Revoked: revoked}
		must(t, s.Run(t.Context(), &b))
		c.StartDaemon("ctld-ctl1")
		c.WaitReady()
		return b.String()
	}
	refused := func() {
		t.Helper()
		c.Wait("the thief to be refused", func() error {
			conn, err := c.dial(thief, pki.RoleLogin, "lg1", "ctl1")
			if err == nil {
				return errors.Join(errors.New("it is served"), conn.Close())
			}
			return nil
		})
		cl := c.Client()
		defer cl.Close()
		var have proto.CertsReply
		must(t, cl.Call(proto.KindCerts, &proto.Empty{}, &have))
		if len(have.Revoked) != 1 || have.Revoked[0].Name != "lg1" || have.Revoked[0].Why != "stolen" {
			t.Errorf("the state has %+v", have.Revoked)
		}
		var again proto.EditTokensReply
		must(t, cl.Call(proto.KindEditTokens, &proto.EditTokensRequest{Export: true}, &again))
		if !bytes.Equal(key.Key, again.Key) {
			t.Error("the old key of tokens counts again")
		}
	}
	const says = "what was revoked since the snapshot stays revoked: 1 daemons or certificates, and tokens of 1 users"
	if got := restore(""); !strings.Contains(got, says) || strings.Contains(got, "warning") {
		t.Error(got)
	}
	refused()

	must(t, os.Remove(list))
	other := filepath.Join(t.TempDir(), "list")
	must(t, os.WriteFile(other, record, 0o600))
	if got := restore(other); !strings.Contains(got, says) {
		t.Error(got)
	}
	refused()

	c.StopDaemon("ctld-ctl1")
	must(t, os.Remove(list))
	var b bytes.Buffer
	s := ctld.Start{Conf: c.Conf, Name: "ctl1", Restore: old, Replace: true}
	must(t, s.Run(t.Context(), &b))
	want := "warning: " + list + " is not there: certificates and tokens that were revoked"
	if !strings.Contains(b.String(), want) {
		t.Error(b.String())
	}
}

// TestNewStateForgetsNoRevocation: a leader that begins without a state brings into it what its list has.
func TestNewStateForgetsNoRevocation(t *testing.T) {
	c := &certCluster{devcluster.Start(t, devcluster.Options{Nodes: 1}), t}
	c.revoke(model.CertRevoked{Role: pki.RoleLogin, Name: "lg1"})
	c.StopDaemon("ctld-ctl1")
	must(t, os.RemoveAll(filepath.Join(c.Dir, "state", "ctl1")))
	must(t, os.MkdirAll(filepath.Join(c.Dir, "state", "ctl1"), 0o700))
	var b bytes.Buffer
	s := ctld.Start{Conf: c.Conf, Name: "ctl1", Begin: true}
	must(t, s.Run(t.Context(), &b))
	c.StartDaemon("ctld-ctl1")
	c.Wait("the revocation to be in the state", func() error {
		cl := c.Client()
		defer cl.Close()
		var have proto.CertsReply
		if err := cl.Call(proto.KindCerts, &proto.Empty{}, &have); err != nil {
			return err
		}
		if len(have.Revoked) != 1 {
			return errors.New("it is not")
		}
		return nil
	})
}
