// Package peaks remembers how much GPU memory the jobs of each user and name used, for
// --gpu-mem=auto.
//
// It learns from the jobs of a view and, when another controller begins to lead, from gdbd's
// records (package ctld asks for them). It owns the estimate: the most that one GPU of the last
// eight jobs needed, and a fifth more (peaks.go). Its memory is bounded, and a job that it has seen
// before counts once.
package peaks
