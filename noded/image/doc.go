// Package image gets images of containers from registries and keeps them on a node: each image
// once, for all users that may have it, within a bound of bytes.
//
// It owns one directory that only root can enter:
//
//	sha256-.../root        the files of an image, all owned by nobody
//	sha256-.../image.json  its environment, entry point and size; its time says when it was used last
//	incoming-N             an image that is being unpacked
//	gone-N                 what is being removed
//
// # Who does what
//
// gnoded never parses what a registry sends. It starts a process of its own program (import.go)
// that becomes nobody, has no capabilities and can't get any, and knows only a descriptor of an
// empty directory. Other processes of nobody can't look into it. It asks the registry which image
// a name means, with the user's credentials, and says its digest. Only if the image is not here
// does gnoded let it go on; then it checks each layer against its digest and unpacks it
// (unpack.go). gnoded renames the result into place.
//
// # Invariants
//
//  1. An image is here completely, under the digest of its manifest, or not at all.
//  2. What is unpacked and what is being unpacked is within Options.Bytes, always. The image
//     that was used longest ago goes first, and none that a container uses.
//  3. An image is fetched once, however many ask for it. A name is looked up for each user with
//     that user's credentials: who may not read an image in its registry does not get it here.
//     What a name means is remembered for a minute.
//  4. Nothing of an image is a device, has setuid, setgid or file capabilities, or lies outside
//     of its directory: names are resolved by the kernel below the image's root (openat2).
//     Bytes, files, layers and time are bounded.
//
// cache.go has the Cache, fetch.go talks to the process, login.go reads users' credentials for
// registries.
package image
