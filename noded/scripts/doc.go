// Package scripts keeps a node's batch scripts as files: one for each content and user, which jobs
// take at their start and release at their end. All code is in scripts.go; noded runs the scripts.
package scripts
