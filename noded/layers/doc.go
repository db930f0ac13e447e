// Package layers bounds what the containers of one user may write on a node (ContainerUserSize):
// the layers of changes of --container-image, and the directories that container runtimes get for
// --container. It counts and says whose are too large, in layers.go; package noded ends the steps.
//
// # Invariants
//
//  1. Nothing outside of a container's directory is counted, whatever its user puts there.
//  2. A walk has bounds of files and time; a container beyond them counts as too large.
package layers
