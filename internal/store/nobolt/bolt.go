// Package bolt stands in for github.com/boltdb/bolt, which is archived: go.mod puts it in its place.
//
// raft-boltdb links bolt for MigrateToV2 alone, which reads files that raft-boltdb wrote before its
// version 2. gbatch never wrote such files and never calls it. This has the names that it needs,
// and refuses to open anything. It goes when raft-boltdb drops the import.
package bolt

import (
	"errors"
	"os"
	"time"
)

// ErrLeftOut is what Open gives.
var ErrLeftOut = errors.New("bolt is not linked: files of raft-boltdb before version 2 can't be read")

// Options are bolt's, as far as raft-boltdb sets them.
type Options struct {
	ReadOnly bool
	Timeout  time.Duration
}

// DB is never open.
type DB struct{}

// Tx is never begun.
type Tx struct{}

// Bucket is never found.
type Bucket struct{}

// Open fails with ErrLeftOut.
func Open(string, os.FileMode, *Options) (*DB, error) { return nil, ErrLeftOut }

// Begin fails with ErrLeftOut.
func (*DB) Begin(bool) (*Tx, error) { return nil, ErrLeftOut }

// Rollback fails with ErrLeftOut.
func (*Tx) Rollback() error { return ErrLeftOut }

// Bucket gives none.
func (*Tx) Bucket([]byte) *Bucket { return nil }

// ForEach fails with ErrLeftOut.
func (*Bucket) ForEach(func(k, v []byte) error) error { return ErrLeftOut }
