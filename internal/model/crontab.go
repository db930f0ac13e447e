package model

import "gbatch/internal/wire"

// Cron makes a job one that comes back: an entry of its user's crontab.
type Cron struct {
	Times       string // when it is due: five fields (package cron), by the controllers' time zone
	First, Last int32  // its lines in the crontab, from 1
}

func (x *Cron) Wire(c *wire.C) {
	wire.Text(c, &x.Times, MaxName)
	wire.Int(c, &x.First)
	wire.Int(c, &x.Last)
}

// Recurs reports whether the job comes back after each run, at the next time of its crontab entry.
func (j *Job) Recurs() bool { return j.Spec.Cron != nil && !j.LastRun }

// Crontab is a user's crontab as it was installed. Like a Spec it is never edited.
type Crontab struct {
	UID  uint32
	Text []byte
	Off  []Lines // of entries whose jobs were cancelled since: they are shown as comments
	At   Time    // when it was installed

	Via *Cert  // of the host that spoke for who installed it; nil: a controller's kernel said who that was
	Why string // why none of its entries run any more; "": they do
}

func (x *Crontab) Wire(c *wire.C) {
	wire.Int(c, &x.UID)
	wire.Bytes(c, &x.Text, MaxText)
	wire.List(c, &x.Off, MaxFew)
	wire.Int(c, &x.At)
	wire.Ptr(c, &x.Via)
	wire.Text(c, &x.Why, MaxText)
}

// Lines are lines of a text, from 1.
type Lines struct{ First, Last int32 }

func (x *Lines) Wire(c *wire.C) {
	wire.Int(c, &x.First)
	wire.Int(c, &x.Last)
}
