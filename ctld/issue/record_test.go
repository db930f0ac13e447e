package issue

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gbatch/internal/certs"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/state"
)

// TestRecord: a list takes over what is news, knows keys that were replaced, and says what a state lacks; the file of a
// node counts too, and what is neither is refused.
func TestRecord(t *testing.T) {
	st := state.New()
	do := func(at model.Time, kind state.Kind, b state.Body) {
		st.Apply(state.Command{Kind: kind, At: at, Body: b})
	}
	do(1, state.KindTokens, &state.Tokens{Op: state.TokenFirst, Key: []byte("first key, first key")})
	do(2, state.KindTokens, &state.Tokens{Op: state.TokenRevoke, Users: []string{"ann"}})
	do(3, state.KindCerts, &state.Certs{Op: state.CertRevoke, Revoked: []model.CertRevoked{
		{Role: "login", Name: "l1", At: 3, By: "root"}, {Serial: "ab", At: 3}}})
	before := st.View()
	r := new(Record)
	if !r.Add(RecordOf(before)) || r.Add(RecordOf(before)) || len(r.Missing(before)) != 0 || r.Retired(before) {
		t.Errorf("%+v", r)
	}
	do(4, state.KindCerts, &state.Certs{Op: state.CertRevoke, Revoked: []model.CertRevoked{
		{Role: "login", Name: "l1", At: 4}, {Role: "node", Name: "n1", At: 4}}})
	do(5, state.KindTokens, &state.Tokens{Op: state.TokenRevoke, Users: []string{"ann", "bob"}})
	if !r.Add(RecordOf(st.View())) || len(r.Certs) != 3 || r.TokensRevoked("ann") != 5 {
		t.Errorf("%+v", r)
	}
	lacks := r.Missing(before)
	if len(lacks) != 2 || len(lacks[0].(*state.Certs).Revoked) != 2 || len(lacks[1].(*state.Tokens).Users) != 2 {
		t.Errorf("%+v", lacks)
	}
	do(6, state.KindTokens, &state.Tokens{Op: state.TokenKey, Key: []byte("second key, second key")})
	if !r.Add(RecordOf(st.View())) || !r.Retired(before) || r.Retired(st.View()) || len(r.Tokens) != 0 ||
		len(r.Missing(before)) != 1 || !r.IsKey([]byte("second key, second key")) {
		t.Errorf("%+v", r)
	}
	path := filepath.Join(t.TempDir(), RecordFile)
	if err := r.Save(path); err != nil {
		t.Fatal(err)
	}
	again, err := ReadRecord(path)
	if err != nil || again.Add(r) || r.Add(again) {
		t.Errorf("%+v, %v", again, err)
	}
	if r.Revoked(&model.Cert{Role: "node", Name: "n1", At: 4, Serial: "x"}) == nil ||
		r.Revoked(&model.Cert{Role: "node", Name: "n1", At: 5, Serial: "x"}) != nil {
		t.Error("a name stands for what was issued until then")
	}
	other := &Record{Cluster: "other", Certs: r.Certs}
	do(7, state.KindConfig, &state.SetConfig{Config: &model.Config{Cluster: "c"}, Instance: 1})
	fresh := state.New()
	fresh.Apply(state.Command{Kind: state.KindConfig, At: 1,
		Body: &state.SetConfig{Config: &model.Config{Cluster: "c"}, Instance: 1}})
	if n := len(other.Missing(fresh.View())); n != 0 {
		t.Errorf("%d changes by the list of another cluster", n)
	}

	if err := certs.Keep(path, &proto.Revoked{Gen: 1, List: r.Certs}); err != nil {
		t.Fatal(err)
	}
	if again, err = ReadRecord(path); err != nil || len(again.Certs) != 3 {
		t.Errorf("a node's: %+v, %v", again, err)
	}
	if err := os.WriteFile(path, []byte("what is this"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadRecord(path); err == nil || !strings.Contains(err.Error(), "is no list of revocations") {
		t.Errorf("any file: %v", err)
	}
	if _, err := ReadRecord(path + "x"); !NoRecord(err) {
		t.Errorf("no file: %v", err)
	}
}
