package container

import "strings"

// Runtime says how a node runs containers of --container: by a program that is known, or by the patterns of oci.conf,
// which the shell runs as the job's user.
type Runtime struct {
	Name string // one of RuntimeNames; "": crun or runc, whichever is there

	// Patterns; with Run, Name does not count.
	Run    string `json:",omitempty"`
	Kill   string `json:",omitempty"`
	Delete string `json:",omitempty"`

	Path       string   `json:",omitempty"` // pattern of the directory below which a task's bundle is made
	EnvFile    string   `json:",omitempty"` // EnvNull, EnvLines; "": none is made
	MountAt    string   `json:",omitempty"` // where the files of gbatch are in the container; "": /dev/gbatch
	EnvExclude string   `json:",omitempty"` // regular expression of entries that a container doesn't get
	RunExclude string   `json:",omitempty"` // and of those that the runtime doesn't get
	NoHooks    []string `json:",omitempty"` // kinds of the bundle's hooks that are not run

	KeepFiles bool `json:",omitempty"` // the task's bundle stays until the step's end
	NoConfig  bool `json:",omitempty"` // the bundle's config.json is not read, and none is made
}

// How the entries of an environment's file end.
const (
	EnvNull  = "null"
	EnvLines = "newline"
)

// RuntimeNames are the programs that are known.
var RuntimeNames = []string{"crun", "runc", "apptainer", "singularity", "podman", "enroot"}

// OCIPatterns are the patterns of oci.conf: %% the character, %@ the command, %b the bundle, %e the environment's file,
// %j the job, %m the task's directory, %n the node, %p the runtime's process, %r the root file system, %s the step,
// %t the task, %u the user's name, %U the user's id.
const OCIPatterns = "%% %@ %b %e %j %m %n %p %r %s %t %u %U"

// BadPattern gives the first pattern of a text that is none of OCIPatterns, "" if there is none.
func BadPattern(text string) string {
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			continue
		}
		i++
		if i == len(text) || !strings.Contains(OCIPatterns, "%"+text[i:i+1]) || text[i] == ' ' {
			return text[i-1 : min(i+1, len(text))]
		}
	}
	return ""
}
