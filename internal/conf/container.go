package conf

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"gbatch/internal/hostlist"
	"gbatch/internal/model/container"
)

// Container is a line of job_container.conf: the directories that each job has for itself on some nodes.
type Container struct {
	NodeExpr string   // as written; "": every node
	BasePath string   // where they are kept, may hold %n and %h; "": in gnoded's spool
	AutoBase bool     // BasePath is made if it is missing
	Shared   bool     // what is mounted on the node later is seen in jobs
	Dirs     []string // absolute, none below another
}

// defaultDirs are the directories that jobs have for themselves if Dirs does not name others.
var defaultDirs = []string{"/tmp", "/var/tmp", "/dev/shm"}

// ContainerOf gives the line for a node; nil: its jobs share the node's directories.
func (c *Config) ContainerOf(node string) *Container {
	if c.JobContainerType != containerTmpfs {
		return nil
	}
	for i := range c.Containers {
		b := &c.Containers[i]
		if b.NodeExpr == "" {
			return b
		}
		if ok, err := hostlist.Contains(b.NodeExpr, node); err == nil && ok {
			return b
		}
	}
	if len(c.Containers) > 0 {
		return nil // the file is for other nodes
	}
	return &Container{Dirs: defaultDirs}
}

// defaultContainerCacheMiB has room for some images of frameworks.
const defaultContainerCacheMiB = 100 << 10

// defaultContainerUserMiB has room for the packages of some environments, and for a forgotten checkpoint.
const defaultContainerUserMiB = 100 << 10

// Runtime says how the nodes run containers of --container.
func (c *Config) Runtime() container.Runtime {
	if c.ContainerRuntime == "" || c.ContainerRuntime == OCIFile {
		return c.OCI
	}
	return container.Runtime{Name: c.ContainerRuntime}
}

// containerSettings are gbatch's own: where the images of --container-image are kept, and what runs bundles.
func containerSettings() []setting {
	bytes := func(name string, of func(c *Config) *int64) setting {
		size := memory(name, RestartNoded, of)
		size.show = func(c *Config) string {
			if *of(c) == 0 {
				return "0"
			}
			return strconv.FormatInt(*of(c), 10) + "M"
		}
		return size
	}
	return []setting{
		absPath("ContainerCachePath", RestartNoded, func(c *Config) *string { return &c.ContainerCachePath }),
		word("ContainerRuntime", RestartNoded, func(c *Config) *string { return &c.ContainerRuntime },
			append([]string{OCIFile}, container.RuntimeNames...)...),
		bytes("ContainerCacheSize", func(c *Config) *int64 { return &c.ContainerCacheMiB }),
		bytes("ContainerUserSize", func(c *Config) *int64 { return &c.ContainerUserMiB }),
	}
}

const (
	containerTmpfs = "job_container/tmpfs"
	containerNone  = "job_container/none"
)

// readContainerType reads JobContainerType, and NamespaceType as newer Slurms call it.
func readContainerType(c *Config, v string) fault {
	w, f := readWord(v, []string{containerNone, containerTmpfs, "namespace/none", "namespace/tmpfs", "job_container/cncu"})
	switch w {
	case "":
		f.want = containerTmpfs + " or " + containerNone
		return f
	case containerTmpfs, "namespace/tmpfs":
		c.JobContainerType = containerTmpfs
	default:
		c.JobContainerType = containerNone
	}
	return fault{}
}

func containerKeys() []lineKey[Container] {
	out := []lineKey[Container]{
		{name: "NodeName", read: func(c *Container, v string) fault {
			if _, err := hostlist.Expand(v); err != nil {
				return fault{why: shown(v) + " is not a list of nodes: " + err.Error(), want: "n[1-4]"}
			}
			c.NodeExpr = v
			return fault{}
		}},
		{name: "BasePath", read: func(c *Container, v string) fault {
			if !strings.HasPrefix(v, "/") || path.Clean(v) == "/" {
				return fault{shown(v) + " is not the absolute path of a directory", "/var/lib/gbatch/containers"}
			}
			c.BasePath = path.Clean(v)
			return fault{}
		}},
		{name: "AutoBasePath", read: func(c *Container, v string) (f fault) { c.AutoBase, f = readBool(v); return f }},
		{name: "Shared", read: func(c *Container, v string) (f fault) { c.Shared, f = readBool(v); return f }},
		{name: "Dirs", read: func(c *Container, v string) fault {
			c.Dirs = nil
			for _, d := range splitList(v) {
				if d = path.Clean(d); !strings.HasPrefix(d, "/") || d == "/" {
					return fault{shown(d) + " is not the absolute path of a directory", strings.Join(defaultDirs, ",")}
				}
				for _, other := range c.Dirs {
					if within(d, other) || within(other, d) {
						return fault{shown(d) + " and " + shown(other) + " are one within the other", other}
					}
				}
				c.Dirs = append(c.Dirs, d)
			}
			return fault{}
		}},
	}
	refused := func(why string, names ...string) {
		for _, n := range names {
			out = append(out, lineKey[Container]{name: n, read: func(_ *Container, v string) fault {
				if b, f := readBool(v); v == "" || !f.bad() && !b { // it turns off what is not done
					return fault{}
				}
				return fault{why: "can't be set here: " + why, want: "no " + n}
			}})
		}
	}
	refused("Prolog runs as root when a job's directories have been made, before its first process", "InitScript")
	refused("no program runs within a job's directories but the job's own; TaskProlog does", "CloneNSScript",
		"CloneNSScript_Wait")
	refused("TaskEpilog and the end of the batch script come before a job's directories go", "CloneNSEpilog",
		"CloneNSEpilog_Wait")
	refused("the files of --output, --error and --input are the node's own", "EntireStepInNS")
	return out
}

// within reports whether a path is a directory or below it.
func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// readContainers reads job_container.conf. A line without NodeName and BasePath is for the lines after it.
func (l *loader) readContainers(lines []statement) {
	var global []pair
	for _, s := range lines {
		own := false
		for _, p := range s.pairs {
			own = own || strings.EqualFold(p.key, "NodeName") || strings.EqualFold(p.key, "BasePath")
		}
		if !own {
			global = append(global, s.pairs...)
			continue
		}
		c := Container{Dirs: defaultDirs}
		readKeys(l, containerKeys(), overlay(global, s.pairs), &c, ContainerFile)
		l.cfg.Containers = append(l.cfg.Containers, c)
	}
	if len(l.cfg.Containers) == 0 && len(lines) > 0 {
		c := Container{Dirs: defaultDirs}
		readKeys(l, containerKeys(), global, &c, ContainerFile)
		l.cfg.Containers = append(l.cfg.Containers, c)
	}
	if len(lines) > 0 && l.cfg.JobContainerType != containerTmpfs {
		l.probs.notef(lines[0].at, "write JobContainerType="+containerTmpfs+" in "+filepath.Base(l.cfg.Path),
			"%s has no effect without JobContainerType=%s", ContainerFile, containerTmpfs)
	}
}

// show gives the line as it is read.
func (c *Container) show() string {
	return fmt.Sprintf("NodeName=%s BasePath=%s AutoBasePath=%s Shared=%s Dirs=%s", c.NodeExpr, c.BasePath,
		showBool(c.AutoBase), showBool(c.Shared), strings.Join(c.Dirs, ","))
}

// ociKeys are the keys of oci.conf.
func ociKeys() []lineKey[container.Runtime] {
	type R = container.Runtime
	pattern := func(name string, at func(*R) *string) lineKey[R] {
		return lineKey[R]{name: name, read: func(r *R, v string) fault {
			if bad := container.BadPattern(v); bad != "" {
				return fault{why: shown(v) + " has " + bad + ", which stands for nothing", want: "one of " +
					container.OCIPatterns}
			}
			*at(r) = v
			return fault{}
		}}
	}
	expression := func(name string, at func(*R) *string) lineKey[R] {
		return lineKey[R]{name: name, read: func(r *R, v string) fault {
			if _, err := regexp.CompilePOSIX(v); err != nil {
				return fault{why: shown(v) + " is no regular expression: " + err.Error(), want: "^(SLURM_CONF|TOKEN)="}
			}
			*at(r) = v
			return fault{}
		}}
	}
	yes := func(name string, at func(*R) *bool) lineKey[R] {
		return lineKey[R]{name: name, read: func(r *R, v string) (f fault) { *at(r), f = readBool(v); return f }}
	}
	out := []lineKey[R]{
		pattern("RunTimeRun", func(r *R) *string { return &r.Run }),
		pattern("RunTimeKill", func(r *R) *string { return &r.Kill }),
		pattern("RunTimeDelete", func(r *R) *string { return &r.Delete }),
		pattern("ContainerPath", func(r *R) *string { return &r.Path }),
		expression("EnvExclude", func(r *R) *string { return &r.EnvExclude }),
		expression("RunTimeEnvExclude", func(r *R) *string { return &r.RunExclude }),
		yes("DisableCleanup", func(r *R) *bool { return &r.KeepFiles }),
		yes("IgnoreFileConfigJson", func(r *R) *bool { return &r.NoConfig }),
		{name: "DisableHooks", read: func(r *R, v string) fault { r.NoHooks = splitList(v); return fault{} }},
		{name: "CreateEnvFile", read: func(r *R, v string) fault {
			switch strings.ToLower(v) {
			case "null", "true", "yes":
				r.EnvFile = container.EnvNull
			case "newline":
				r.EnvFile = container.EnvLines
			case "disabled", "false", "no":
				r.EnvFile = ""
			default:
				return fault{why: shown(v) + " is no way to write a file", want: "null, newline or disabled"}
			}
			return fault{}
		}},
		{name: "MountSpoolDir", read: func(r *R, v string) fault {
			if !strings.HasPrefix(v, "/") || strings.Contains(v, "%") {
				return fault{why: shown(v) + " is not an absolute path without patterns", want: "/run/gbatch"}
			}
			r.MountAt = path.Clean(v)
			return fault{}
		}},
	}
	for _, name := range []string{"RunTimeCreate", "RunTimeStart", "RunTimeQuery"} {
		out = append(out, lineKey[R]{name: name, note: "has no effect: RunTimeRun does all of it, and " +
			"tells how the container ended"})
	}
	for _, name := range []string{"SrunPath", "SrunArgs"} {
		out = append(out, lineKey[R]{name: name, note: "has no effect: it is for scrun, and a container is run by grun " +
			"--container"})
	}
	for _, name := range []string{"DebugFlags", "FileDebug", "StdIODebug", "SyslogDebug"} {
		out = append(out, lineKey[R]{name: name, note: "has no effect: what a runtime says is in the step's output"})
	}
	return out
}

// readOCI reads oci.conf.
func (l *loader) readOCI(lines []statement) {
	var pairs []pair
	for _, s := range lines {
		pairs = append(pairs, s.pairs...)
	}
	if len(pairs) == 0 {
		if l.cfg.ContainerRuntime == OCIFile {
			l.probs.errorf(l.where("ContainerRuntime"), "write "+OCIFile+" beside this file, or ContainerRuntime=crun",
				"ContainerRuntime=%[1]s, and there is no %[1]s, or nothing in it", OCIFile)
		}
		return
	}
	readKeys(l, ociKeys(), pairs, &l.cfg.OCI, OCIFile)
	if l.cfg.OCI.Run == "" {
		l.probs.errorf(pairs[0].at, `RunTimeRun="runc --rootless=true --root=%m run --bundle=%b %n.%j.%s.%t"`,
			"%s does not say how a container is run", OCIFile)
	}
}
