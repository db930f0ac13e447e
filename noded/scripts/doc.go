// Package scripts keeps a node's batch scripts as files: one for each content and user, taken by
// the jobs that run it and given back at their ends. scripts.go has it all; who runs a script and
// when is noded's.
package scripts
