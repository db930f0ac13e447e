// Package userdb asks this host's user database who a user id is: name, group, and the groups that
// initgroups(3) would give.
//
// It asks getent(1) and id(1), so that every source that the host has configured answers (files,
// LDAP, SSSD), also in programs that are built without cgo, and so that a source that hangs costs
// one process that is killed, and neither a thread nor the daemon. Answers are kept for a while;
// ask it beside loops, never in them.
package userdb

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	maxKnown   = 16384            // users, and likewise groups; when there are more, all are asked for again
	fresh      = 10 * time.Minute // answers are taken as they are
	freshNone  = 10 * time.Second // that there is no such user, or that nothing answers
	stale      = time.Hour        // answers are taken while the database gives none
	askTimeout = 5 * time.Second
	maxAsking  = 8 // processes at once
	maxGroups  = 65536
)

// ErrUnknown says that the database has no such user.
var ErrUnknown = errors.New("unknown to the user database")

// User is an entry. Groups are all groups of the user, GID among them, in ascending order.
type User struct {
	UID    uint32
	GID    uint32
	Name   string
	Groups []uint32
	Home   string // "": not known
}

// Has reports whether a group is one of the user's.
func (u *User) Has(gid uint32) bool {
	_, ok := slices.BinarySearch(u.Groups, gid)
	return ok
}

// DB is this host's database, with the answers that it gave. It may be used by several goroutines.
type DB struct {
	now   func() time.Time
	ask   func(ctx context.Context, uid uint32) (User, error)
	group func(ctx context.Context, gid uint32) (string, error)
	turns chan struct{}

	mu     sync.Mutex
	users  map[uint32]*known[User]
	groups map[uint32]*known[string]
	names  map[string]*known[uint32]
}

// known is one answer, or the wait for the first one.
type known[T any] struct {
	value  T
	err    error // of the last time
	at     time.Time
	good   time.Time // of value; zero: there is none
	asking chan struct{}
}

// New gives the host's database.
func New() *DB { return NewWith(askUser, askGroup) }

// NewWith gives a database with answers of one's own, for tests: ErrUnknown for a user who is not there, other errors
// when nothing answers.
func NewWith(ask func(context.Context, uint32) (User, error), group func(context.Context, uint32) (string, error)) *DB {
	return &DB{now: time.Now, ask: ask, group: group, turns: make(chan struct{}, maxAsking),
		users: map[uint32]*known[User]{}, groups: map[uint32]*known[string]{}, names: map[string]*known[uint32]{}}
}

// User gives the entry of a user id. The error is ErrUnknown, or says that the database does not answer. The entry's
// Groups are shared: copy before changing them.
func (d *DB) User(ctx context.Context, uid uint32) (User, error) {
	return get(ctx, d, d.users, uid, d.ask)
}

// Name gives a user's name, or the id in digits if there is none.
func (d *DB) Name(ctx context.Context, uid uint32) string {
	if u, err := d.User(ctx, uid); err == nil {
		return u.Name
	}
	return strconv.FormatUint(uint64(uid), 10)
}

// Group gives a group's name, or the id in digits if there is none.
func (d *DB) Group(ctx context.Context, gid uint32) string {
	if name, err := get(ctx, d, d.groups, gid, d.group); err == nil {
		return name
	}
	return strconv.FormatUint(uint64(gid), 10)
}

// get gives a kept answer, or asks. Several who ask for the same wait for one answer.
func get[K comparable, T any](ctx context.Context, d *DB, all map[K]*known[T], id K,
	ask func(context.Context, K) (T, error)) (T, error) {
	for {
		d.mu.Lock()
		k := all[id]
		if k == nil {
			if len(all) >= maxKnown {
				clear(all)
			}
			k = &known[T]{}
			all[id] = k
		}
		age := d.now().Sub(k.at)
		if !k.at.IsZero() && (k.err == nil && age < fresh || age < freshNone) {
			value, err := k.answer(d.now())
			d.mu.Unlock()
			return value, err
		}
		if wait := k.asking; wait != nil {
			d.mu.Unlock()
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				var none T
				return none, context.Cause(ctx)
			}
		}
		done := make(chan struct{})
		k.asking = done
		d.mu.Unlock()
		value, err := inTurn(ctx, d, id, ask)
		d.mu.Lock()
		k.asking = nil
		if err == nil || ctx.Err() == nil { // else nobody has asked in earnest
			k.err, k.at = err, d.now()
		}
		switch {
		case err == nil:
			k.value, k.good = value, k.at
		case errors.Is(err, ErrUnknown):
			k.good = time.Time{}
		}
		value, err = k.answerOr(d.now(), err)
		d.mu.Unlock()
		close(done)
		return value, err
	}
}

func inTurn[K, T any](ctx context.Context, d *DB, id K, ask func(context.Context, K) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var none T
	select {
	case d.turns <- struct{}{}:
		defer func() { <-d.turns }()
	case <-ctx.Done():
		return none, fmt.Errorf("the user database is asked for %d others and does not answer", maxAsking)
	}
	return ask(ctx, id)
}

func (k *known[T]) answer(now time.Time) (T, error) { return k.answerOr(now, k.err) }

// answerOr gives an older answer in place of none.
func (k *known[T]) answerOr(now time.Time, err error) (T, error) {
	if err == nil || !errors.Is(err, ErrUnknown) && !k.good.IsZero() && now.Sub(k.good) < stale {
		return k.value, nil
	}
	var none T
	return none, err
}

// askUser asks the host.
func askUser(ctx context.Context, uid uint32) (User, error) {
	digits := strconv.FormatUint(uint64(uid), 10)
	line, err := entry(ctx, "passwd", digits)
	if errors.Is(err, exec.ErrNotFound) {
		return askFiles(digits)
	}
	if err != nil {
		return User{}, err
	}
	f := strings.Split(line, ":") // name:x:uid:gid:...
	if len(f) < 4 || f[0] == "" || f[2] != digits {
		return User{}, fmt.Errorf("getent passwd %s gives no entry of that user", digits)
	}
	gid, err := strconv.ParseUint(f[3], 10, 32)
	if err != nil {
		return User{}, fmt.Errorf("getent passwd %s: %w", digits, err)
	}
	u := User{UID: uid, GID: uint32(gid), Name: f[0]}
	if len(f) > 5 {
		u.Home = f[5]
	}
	out, err := run(ctx, "id", "-G", "--", u.Name)
	if err != nil {
		return User{}, err
	}
	return u, u.take(strings.Fields(string(out)))
}

// take reads the numbers of groups.
func (u *User) take(digits []string) error {
	if len(digits) > maxGroups {
		return fmt.Errorf("user %s has %d groups, at most %d are possible", u.Name, len(digits), maxGroups)
	}
	u.Groups = []uint32{u.GID}
	for _, text := range digits {
		gid, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return fmt.Errorf("the groups of user %s: %w", u.Name, err)
		}
		u.Groups = append(u.Groups, uint32(gid))
	}
	slices.Sort(u.Groups)
	u.Groups = slices.Compact(u.Groups)
	return nil
}

// askFiles is for hosts without getent, whose database is /etc/passwd and /etc/group.
func askFiles(digits string) (User, error) {
	who, err := user.LookupId(digits)
	if err != nil {
		return User{}, ErrUnknown
	}
	uid, err := strconv.ParseUint(who.Uid, 10, 32)
	if err != nil {
		return User{}, err
	}
	gid, err := strconv.ParseUint(who.Gid, 10, 32)
	if err != nil {
		return User{}, err
	}
	u := User{UID: uint32(uid), GID: uint32(gid), Name: who.Username, Home: who.HomeDir}
	groups, err := who.GroupIds()
	if err != nil {
		return User{}, err
	}
	return u, u.take(groups)
}

// maxName is the length of the longest name that is asked for, bytes.
const maxName = 256

func mayBeName(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsAny(name, "\x00\n:/") && name[0] != '-'
}

// Named gives the user with a login name.
func (d *DB) Named(ctx context.Context, name string) (User, error) {
	if !mayBeName(name) {
		return User{}, ErrUnknown
	}
	uid, err := get(ctx, d, d.names, name, askName)
	if err != nil {
		return User{}, err
	}
	u, err := d.User(ctx, uid)
	if err == nil && u.Name != name { // a number, or another of the user's names
		return User{}, ErrUnknown
	}
	return u, err
}

func askName(ctx context.Context, name string) (uint32, error) {
	return numberOf(ctx, "passwd", name, func() (string, error) {
		u, err := user.Lookup(name)
		if err != nil {
			return "", err
		}
		return u.Uid, nil
	})
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// numberOf gives the number that the entry of a name has; lookup reads this host's files where there is no getent.
func numberOf(ctx context.Context, database, name string, lookup func() (string, error)) (uint32, error) {
	digits := ""
	line, err := entry(ctx, database, name)
	switch f := strings.Split(line, ":"); {
	case errors.Is(err, exec.ErrNotFound):
		if digits, err = lookup(); err != nil {
			return 0, ErrUnknown
		}
	case err != nil:
		return 0, err
	case len(f) > 2 && f[0] != name && isNumber(name): // it was asked for as an id; other spellings are the directory's
		return 0, ErrUnknown
	case len(f) > 2:
		digits = f[2]
	}
	id, err := strconv.ParseUint(digits, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("getent %s %s gives no entry of that name", database, name)
	}
	return uint32(id), nil
}

func askGroup(ctx context.Context, gid uint32) (string, error) {
	digits := strconv.FormatUint(uint64(gid), 10)
	line, err := entry(ctx, "group", digits)
	if errors.Is(err, exec.ErrNotFound) {
		g, err := user.LookupGroupId(digits)
		if err != nil {
			return "", ErrUnknown
		}
		return g.Name, nil
	}
	name, _, _ := strings.Cut(line, ":")
	if err == nil && name == "" {
		err = ErrUnknown
	}
	return name, err
}

// GroupNamed gives the number of the group with a name. It is asked for each time.
func (d *DB) GroupNamed(ctx context.Context, name string) (uint32, error) {
	if !mayBeName(name) {
		return 0, ErrUnknown
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return numberOf(ctx, "group", name, func() (string, error) {
		g, err := user.LookupGroup(name)
		if err != nil {
			return "", err
		}
		return g.Gid, nil
	})
}

// entry gives one line of a database.
func entry(ctx context.Context, database, key string) (string, error) {
	const notFound = 2 // getent's exit code
	out, err := run(ctx, "getent", database, key)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == notFound {
		return "", ErrUnknown
	}
	return strings.TrimSpace(string(out)), err
}

func run(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.WaitDelay = "/", time.Second
	out, err := cmd.Output()
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s %s did not answer within %v", name, strings.Join(args, " "), askTimeout)
	}
	return nil, fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
}
