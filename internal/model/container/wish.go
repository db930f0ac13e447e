package container

import (
	"errors"
	"fmt"
	"strings"

	"gbatch/internal/plain"
	"gbatch/internal/wire"
)

// The limits of a request.
const (
	MaxImage  = 512  // bytes of an image's name
	MaxPath   = 4096 // bytes of a path
	MaxMounts = 64
	MaxEnv    = 256 // names of variables
	maxName   = 64  // bytes of a container's or variable's name
	maxVar    = 128

	wireName = 4 << 10 // what a reader accepts
	wireText = 1 << 20
)

// Choice is an option that a site decides where a user does not.
type Choice int8

// The choices. The numbers are stored: append only.
const (
	Unset Choice = iota
	Yes
	No
)

// Or gives the choice, or what holds without one.
func (c Choice) Or(otherwise bool) bool {
	if c == Unset {
		return otherwise
	}
	return c == Yes
}

// Wish is a container that a user asks for. It is never edited.
type Wish struct {
	Image   string   // of a registry: [docker://][USER@][REGISTRY#]IMAGE[:TAG], "": Bundle, or the one of Name
	Bundle  string   // the directory of an OCI bundle (--container)
	Mounts  []string // SRC:DST[:FLAGS]
	WorkDir string   // in the container; "": the image's
	Name    string   // steps of one job that say the same name share a container; "": it is the step's own
	Env     []string // variables of the submission that come before the image's
	Home    Choice   // the user's home directory is mounted
	Root    Choice   // the user is shown as root
	Entry   Choice   // the image's entry point runs the command
	Write   Choice   // the image's files can be changed, in this container
}

func (x *Wish) Wire(c *wire.C) {
	wire.Text(c, &x.Image, wireName)
	wire.Text(c, &x.Bundle, wireText)
	wire.Texts(c, &x.Mounts, wireName, wireText)
	wire.Text(c, &x.WorkDir, wireText)
	wire.Text(c, &x.Name, wireName)
	wire.Texts(c, &x.Env, wireName, wireName)
	wire.Int(c, &x.Home)
	wire.Int(c, &x.Root)
	wire.Int(c, &x.Entry)
	wire.Int(c, &x.Write)
}

// Shown is the container in one word, for columns and records.
func (x *Wish) Shown() string {
	switch {
	case x == nil:
		return ""
	case x.Bundle != "":
		return x.Bundle
	case x.Image != "":
		return x.Image
	}
	return x.Name
}

// Check refuses what no node can do.
func (x *Wish) Check() error {
	if x == nil {
		return nil
	}
	for _, c := range []Choice{x.Home, x.Root, x.Entry, x.Write} {
		if c < Unset || c > No {
			return fmt.Errorf("a container's option has the value %d", c)
		}
	}
	switch {
	case x.Bundle != "" && x.Image != "":
		return errors.New("--container and --container-image are given: a container has one of them")
	case x.Bundle == "" && x.Root == Yes:
		return errors.New("--container-remap-root is not done here: leave it out; the image's files are yours in the " +
			"container, and can be changed")
	case x.Bundle == "" && x.Image == "" && x.Name == "":
		return errors.New("an option of containers is given without --container-image or --container: give the image")
	case x.Bundle != "" && x.Entry != Unset:
		return errors.New("--container-entrypoint: a bundle has no entry point; leave it out")
	}
	if err := errors.Join(checkImage(x.Image), checkBundle(x.Bundle)); err != nil {
		return err
	}
	if x.Name != "" && !isName(x.Name, maxName, ".-") {
		return fmt.Errorf("--container-name '%s': a name has at most %d letters, digits, and . _ -", plain.Line(x.Name),
			maxName)
	}
	if err := CheckPath("--container-workdir", x.WorkDir); err != nil {
		return err
	}
	if len(x.Mounts) > MaxMounts {
		return fmt.Errorf("--container-mounts has %d mounts, a container at most %d", len(x.Mounts), MaxMounts)
	}
	for _, m := range x.Mounts {
		if _, err := ParseMount(m); err != nil {
			return err
		}
	}
	if len(x.Env) > MaxEnv {
		return fmt.Errorf("--container-env has %d names, at most %d are taken", len(x.Env), MaxEnv)
	}
	for _, name := range x.Env {
		if !isName(name, maxVar, "") {
			return fmt.Errorf("--container-env '%s' is not the name of a variable", plain.Line(name))
		}
	}
	return nil
}

// CheckPath refuses a path that is not absolute, too long, or has characters that nobody should see; "" is fine.
func CheckPath(option, path string) error {
	switch {
	case path == "":
		return nil
	case path[0] != '/':
		return fmt.Errorf("%s '%s' is not an absolute path", option, plain.Line(path))
	case len(path) > MaxPath:
		return fmt.Errorf("%s has a path of %d bytes, at most %d are taken", option, len(path), MaxPath)
	}
	if err := plain.Check(path); err != nil {
		return fmt.Errorf("%s '%s': %w", option, plain.Line(path), err)
	}
	return nil
}

// checkBundle refuses what can name neither a directory or a file of a node, nor an image for a site's runtime; "" is
// fine.
func checkBundle(bundle string) error {
	if scheme, rest, has := strings.Cut(bundle, "://"); has && rest != "" && isName(scheme, maxName, "-") {
		return CheckPath("--container", "/"+bundle)
	}
	return CheckPath("--container", bundle)
}

// checkImage refuses names of images that no registry has, and what is no image of a registry; "" is fine.
func checkImage(image string) error {
	if image == "" {
		return nil
	}
	shown := plain.Line(image)
	scheme, rest, has := strings.Cut(image, "://")
	switch {
	case len(image) > MaxImage:
		return fmt.Errorf("--container-image has a name of %d bytes, at most %d are taken", len(image), MaxImage)
	case image[0] == '/' || image[0] == '.':
		return fmt.Errorf("--container-image '%s' is a file: mounting a file system that a user has made is not safe; "+
			"push the image to a registry (skopeo copy, docker push) and name it there", shown)
	case has && scheme != "docker":
		return fmt.Errorf("--container-image '%s': images come from registries (docker://REGISTRY/IMAGE:TAG); of %s:// "+
			"there is nothing on a node", shown, scheme)
	case has && rest == "":
		return fmt.Errorf("--container-image '%s' names no image", shown)
	}
	for _, r := range image {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("./:@#_-+[]", r):
		default:
			return fmt.Errorf("--container-image '%s': names of images have letters, digits and . / : @ # _ -", shown)
		}
	}
	return nil
}

// isName reports whether text has letters, digits, _ and what is in also, and does not begin with any of also.
func isName(text string, most int, also string) bool {
	if text == "" || len(text) > most || strings.ContainsRune(also, rune(text[0])) {
		return false
	}
	for _, r := range text {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' ||
			strings.ContainsRune(also, r)) {
			return false
		}
	}
	return true
}
