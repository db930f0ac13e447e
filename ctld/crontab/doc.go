// Package crontab is what the controllers do of users' crontabs: the leader judges the jobs of one
// that is to be installed, and sets the next time of jobs whose run has ended.
//
// check.go holds what comes with a request against the bounds, and gives a job its first time;
// due.go gives the times after each run.
//
// It doesn't own how crontabs are written (internal/cron), who may have one and whether its jobs
// can run (package ctld), nor what becomes of their jobs (internal/state/crontab.go). Times go by
// the cluster's clock and this controller's time zone; controllers should have the same one.
package crontab
