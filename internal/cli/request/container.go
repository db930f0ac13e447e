package request

import (
	"path/filepath"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/model/container"
)

// container.go has the options for containers, which gsubmit and grun share: those of pyxis, and Slurm's --container.

const groupContainer = "The container"

const (
	noSave = "write what you need into a directory of --container-mounts; a changed image is built and pushed with " +
		"podman or buildah"
	noLog = "leave it out: what the entry point writes is in the step's output"
)

// ContainerOptions are the options about the container that wish gives.
func ContainerOptions(wish func() *container.Wish) []getopt.Option {
	R := getopt.Required
	text := func(at func(*container.Wish) *string) func(string) error {
		return func(v string) error { *at(wish()) = v; return nil }
	}
	choose := func(at func(*container.Wish) *container.Choice, c container.Choice) func(string) error {
		return func(string) error { *at(wish()) = c; return nil }
	}
	home := func(w *container.Wish) *container.Choice { return &w.Home }
	root := func(w *container.Wish) *container.Choice { return &w.Root }
	entry := func(w *container.Wish) *container.Choice { return &w.Entry }
	write := func(w *container.Wish) *container.Choice { return &w.Write }
	pair := func(name, help, not string, at func(*container.Wish) *container.Choice) []getopt.Option {
		return []getopt.Option{
			{Name: "container-" + name, Group: groupContainer, Slot: "container-" + name, Help: help,
				Set: choose(at, container.Yes)},
			{Name: "no-container-" + name, Group: groupContainer, Slot: "container-" + name, Help: not,
				Set: choose(at, container.No)}}
	}
	out := []getopt.Option{
		{Name: "container", Arg: R, Metavar: "bundle", Group: groupContainer, Env: "_CONTAINER",
			Help: "run in this OCI bundle of the nodes by crun or runc, or in what the site's ContainerRuntime= takes",
			Set: func(v string) error {
				var err error
				if v != "" && !strings.Contains(v, "://") {
					v, err = filepath.Abs(v)
				}
				wish().Bundle = v
				return err
			}},
		{Name: "container-id", Arg: R, Metavar: "name", Group: groupContainer, Env: "_CONTAINER_ID",
			Help: "the name of the container of --container for its runtime; task N's has .N behind it",
			Set:  text(func(w *container.Wish) *string { return &w.Name })},
		{Name: "container-image", Arg: R, Metavar: "image", Group: groupContainer, Env: "_CONTAINER_IMAGE",
			Help: "run in this image of a registry: ubuntu:24.04, nvcr.io#nvidia/pytorch:24.01-py3, REGISTRY/NAME@sha256:...",
			Set:  text(func(w *container.Wish) *string { return &w.Image })},
		{Name: "container-mounts", Arg: R, Metavar: "src:dst[:flags],...", Group: groupContainer,
			Help: "directories and files of the node that are seen there: /data:/data:ro,/scratch",
			Set: func(v string) error {
				w := wish()
				for _, m := range strings.Split(v, ",") {
					if _, err := container.ParseMount(m); err != nil {
						return &getopt.TextError{Text: err.Error()}
					}
					w.Mounts = append(w.Mounts, m)
				}
				return nil
			}},
		{Name: "container-workdir", Arg: R, Metavar: "path", Group: groupContainer,
			Help: "working directory in the container; the image's by default",
			Set:  text(func(w *container.Wish) *string { return &w.WorkDir })},
		{Name: "container-name", Arg: R, Metavar: "name", Group: groupContainer,
			Help: "steps of a job that give the same name share a container, with what was changed in it",
			Set:  text(func(w *container.Wish) *string { return &w.Name })},
		{Name: "container-env", Arg: R, Metavar: "names", Group: groupContainer,
			Help: "variables of yours that come before the image's of the same name", Set: func(v string) error {
				wish().Env = append(wish().Env, env.SplitList(v)...)
				return nil
			}},
		{Name: "container-writable", Group: groupContainer, Slot: "container-writable",
			Help: "the image's files can be changed in this container (the default)", Set: choose(write, container.Yes)},
		{Name: "container-readonly", Group: groupContainer, Slot: "container-writable",
			Help: "the image's files can't be changed", Set: choose(write, container.No)},
		{Name: "container-save", Arg: R, Refused: noSave},
		{Name: "container-entrypoint-log", Refused: noLog},
	}
	out = append(out, pair("mount-home", "mount your home directory", "don't mount your home directory (the default)",
		home)...)
	out = append(out, pair("remap-root", "be root in the container of --container", "be yourself there; without "+
		"either you are who the bundle is made for", root)...)
	return append(out, pair("entrypoint", "the image's entry point runs the command",
		"run the command by itself (the default)", entry)...)
}

// containerOptions are those of a job.
func (s *Submission) containerOptions() []getopt.Option {
	return ContainerOptions(func() *container.Wish {
		if s.More.Container == nil {
			s.More.Container = &container.Wish{}
		}
		return s.More.Container
	})
}

// IsContainer reports whether an option is about containers.
func IsContainer(name string) bool {
	return name == "container" || strings.HasPrefix(name, "container-") || strings.HasPrefix(name, "no-container-")
}
