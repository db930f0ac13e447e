// Package facade serves a small interface over HTTP, /api/v1: tasks, GPUs, quotas, the queue and
// pools, in a few members each, for programs that need no more of the cluster than that.
//
// It owns paths and shapes. It does not own what they mean: each request becomes what a command
// would send (package proto), made as the user; options of a task are read by gsubmit's table.
//
// Files: facade.go (the frame), routes.go (the table of paths, with examples), spec.go (the
// specification, made from the types of the answers), tasks.go, ended.go (those
// that accounting has), position.go (places in the queue),
// gpus.go (GPUs, pools, quotas, the queue), history.go (samples over time), money.go (balances,
// costs, invoices).
package facade
