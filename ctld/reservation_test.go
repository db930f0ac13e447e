package ctld

import (
	"os/user"
	"strconv"
	"strings"
	"testing"
)

// Groups of reservations are those of the controller's host.
func TestGroupID(t *testing.T) {
	if _, err := groupID("no-such-group"); err == nil || !strings.Contains(err.Error(), "no such group") {
		t.Errorf("an unknown group: %v", err)
	}
	me, err := user.Current()
	if err != nil {
		t.Skip(err)
	}
	g, err := user.LookupGroupId(me.Gid)
	if err != nil {
		t.Skip("this user's group has no name here")
	}
	if gid, err := groupID(g.Name); err != nil || strconv.FormatUint(uint64(gid), 10) != me.Gid {
		t.Errorf("group %s: %d, %v", g.Name, gid, err)
	}
}
