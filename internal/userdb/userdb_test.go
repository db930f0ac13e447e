package userdb

import (
	"context"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"
)

// TestHost: the answers are this host's, as os/user gives them.
func TestHost(t *testing.T) {
	d := New()
	for _, uid := range []uint32{0, 1, 65534} {
		who, err := user.LookupId(strconv.Itoa(int(uid)))
		if err != nil {
			continue
		}
		u, err := d.User(t.Context(), uid)
		if err != nil || u.Name != who.Username || strconv.Itoa(int(u.GID)) != who.Gid || !u.Has(u.GID) {
			t.Errorf("uid %d: %+v, %v", uid, u, err)
		}
		groups, err := who.GroupIds()
		if err != nil || len(groups) != len(u.Groups) {
			t.Errorf("groups of %s: %v, not %v (%v)", u.Name, u.Groups, groups, err)
		}
	}
	if _, err := d.User(t.Context(), 4_000_000_000); !errors.Is(err, ErrUnknown) {
		t.Errorf("nobody has this id: %v", err)
	}
	if name := d.Name(t.Context(), 4_000_000_000); name != "4000000000" {
		t.Errorf("its name is %s", name)
	}
	if g, err := user.LookupGroupId("1"); err == nil && d.Group(t.Context(), 1) != g.Name {
		t.Errorf("group 1 is %s", d.Group(t.Context(), 1))
	}
}

// TestAnswersAreKept: one question for many who ask, again when it is old, an old answer while none comes, and none for
// ever.
func TestAnswersAreKept(t *testing.T) {
	now, asked, fails := time.Unix(1000, 0), 0, error(nil)
	d := NewWith(func(context.Context, uint32) (User, error) {
		asked++
		return User{UID: 7, Name: "ann", Groups: []uint32{uint32(asked)}}, fails
	}, nil)
	d.now = func() time.Time { return now }
	step := func(after time.Duration, name string, questions int) {
		t.Helper()
		now = now.Add(after)
		u, err := d.User(t.Context(), 7)
		if u.Name != name || (name == "") != (err != nil) || asked != questions {
			t.Errorf("%q, %v after %d questions, not %q after %d", u.Name, err, asked, name, questions)
		}
	}
	step(0, "ann", 1)
	step(fresh-1, "ann", 1)
	step(1, "ann", 2)
	fails = errors.New("no answer")
	step(fresh, "ann", 3)
	step(freshNone-1, "ann", 3)
	step(1, "ann", 4)
	step(stale, "", 5)
	fails = nil
	step(freshNone, "ann", 6)
	fails = ErrUnknown
	step(fresh, "", 7)
	fails = errors.New("no answer")
	step(freshNone, "", 8)
}

// TestSlowDatabase: a database that hangs makes those wait who ask for what is not known, and nobody else; who leaves
// is let go.
func TestSlowDatabase(t *testing.T) {
	free := make(chan struct{})
	d := NewWith(func(ctx context.Context, uid uint32) (User, error) {
		if uid < 100 {
			return User{UID: uid, Name: "quick"}, nil
		}
		select {
		case <-free:
			return User{UID: uid, Name: "slow"}, nil
		case <-ctx.Done():
			return User{}, errors.New("too late")
		}
	}, nil)
	if u, err := d.User(t.Context(), 1); err != nil || u.Name != "quick" {
		t.Fatal(u, err)
	}
	ctx, leave := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 3 * maxAsking {
		wg.Go(func() {
			if _, err := d.User(ctx, uint32(100+i)); err == nil {
				t.Errorf("an answer from a database that hangs")
			}
		})
	}
	if u, err := d.User(t.Context(), 1); err != nil || u.Name != "quick" {
		t.Error("a known user waits for others", u, err)
	}
	leave()
	wg.Wait()
	close(free)
	if u, err := d.User(t.Context(), 100); err != nil || u.Name != "slow" {
		t.Error("the database answers again:", u, err)
	}
}

// TestGroupNamed: groups are found as getent finds them, by name and not by number.
func TestGroupNamed(t *testing.T) {
	dir := t.TempDir()
	fake := "#!/bin/sh\n[ \"$1 $2\" = 'group staff-of-ldap' ] && echo 'staff-of-ldap:*:70001:ann' && exit\n" +
		"[ \"$1 $2\" = 'group 70001' ] && echo 'staff-of-ldap:*:70001:ann' && exit\nexit 2\n"
	if err := os.WriteFile(filepath.Join(dir, "getent"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	db := New()
	if gid, err := db.GroupNamed(t.Context(), "staff-of-ldap"); gid != 70001 || err != nil {
		t.Errorf("%d, %v", gid, err)
	}
	for _, name := range []string{"none", "70001", "", "-x", "a:b"} {
		if gid, err := db.GroupNamed(t.Context(), name); !errors.Is(err, ErrUnknown) {
			t.Errorf("%q: %d, %v", name, gid, err)
		}
	}
}
