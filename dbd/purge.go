package dbd

import (
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"gbatch/internal/model"
)

// This file owns forgetting: finished records older than a number of months are deleted, a whole month at a time, by
// dropping its bucket. Unfinished jobs stay, however old they are. The file keeps its size; the free room is used
// again.

// purgeEvery is how often purge looks for months that are too old.
const purgeEvery = 6 * time.Hour

// purge forgets the finished records of months older than w.keep months. Each month is a transaction of its own.
func (w *writer) purge() error {
	if err := w.purgeOther(); err != nil {
		return err
	}
	if w.keep <= 0 {
		return nil
	}
	y, m, _ := w.now().UTC().Date()
	oldest := time.Date(y, m-time.Month(w.keep), 1, 0, 0, 0, 0, time.UTC).Format("2006-01")
	old := false
	if err := w.view(func(tx *bolt.Tx) error {
		if top := tx.Bucket(keySteps); top != nil {
			name, _ := top.Cursor().First()
			old = name != nil && string(name) < oldest
		}
		return nil
	}); err != nil {
		return err
	}
	if err := w.change(func() error {
		if !old {
			return nil
		}
		return w.bolt.Update(func(tx *bolt.Tx) error { return purgeSteps(tx, oldest) })
	}); err != nil && !errors.Is(err, errFull) {
		return fmt.Errorf("forgetting steps before %s: %w", oldest, err)
	}
	for {
		month := ""
		err := w.view(func(tx *bolt.Tx) error {
			if name, _ := tx.Bucket(keyDone).Cursor().First(); name != nil && string(name) < oldest {
				month = string(name)
			}
			return nil
		})
		if err != nil || month == "" {
			return err
		}
		err = w.change(func() error {
			return w.bolt.Update(func(tx *bolt.Tx) error { return tx.Bucket(keyDone).DeleteBucket([]byte(month)) })
		})
		if errors.Is(err, errFull) {
			return nil // it is in the log; the next tick tries again
		}
		if err != nil {
			return fmt.Errorf("forgetting the accounting records of %s: %w", month, err)
		}
		w.log.Info("forgot the accounting records of a month", "month", month, "kept_months", w.keep)
	}
}

// purgeOther forgets entries of the trail, events, sums and reservations that are too old.
func (w *writer) purgeOther() error {
	n := 0
	err := w.change(func() error {
		return w.bolt.Update(func(tx *bolt.Tx) (err error) {
			n, err = purgeTrail(tx, &w.keepOther, model.Time(w.now().UnixMilli()))
			return err
		})
	})
	if err != nil && !errors.Is(err, errFull) {
		return fmt.Errorf("forgetting old entries of the trail: %w", err)
	}
	if n > 0 {
		w.log.Info("forgot old entries of the audit trail, events, reservations and sums", "count", n)
	}
	return nil
}
