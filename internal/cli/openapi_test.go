package cli

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// member is what Slurm's specification says of a member of a list.
type member struct {
	typ   string
	since string // the version that has it first; "": the oldest that is specified
}

// openapi reads testdata/openapi.txt: for each list its members by their path.
func openapi(t *testing.T) map[string]map[string]member {
	t.Helper()
	text, err := os.ReadFile("testdata/openapi.txt")
	if err != nil {
		t.Fatal(err)
	}
	lists := map[string]map[string]member{}
	var list map[string]member
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#"):
		case len(words) == 1:
			list = map[string]member{}
			lists[words[0]] = list
		default:
			list[words[0]] = member{words[1], strings.Join(words[2:], "")}
		}
	}
	return lists
}

// TestJSONIsSlurms: each member that the commands write is in Slurm's specification of that version, with that type, or
// in notSlurms with a reason.
func TestJSONIsSlurms(t *testing.T) {
	f, specs, known := jsonFake(t), openapi(t), notSlurms()
	met := map[string]bool{}
	for _, l := range jsonLists() {
		spec := specs[l.name]
		if spec == nil {
			continue // gbatch's own, or not in the specification
		}
		spec = maps.Clone(spec)
		maps.Copy(spec, specs["frame"])
		for _, ver := range []string{"v0.0.42", "v0.0.43"} {
			var tree any
			if err := json.Unmarshal([]byte(l.run(t, f, ver)), &tree); err != nil {
				t.Fatal(err)
			}
			types := map[string]string{}
			typesOf(tree, "", types)
			for _, path := range slices.Sorted(maps.Keys(types)) {
				m, ok := spec[path]
				wrong := ""
				switch typ := types[path]; {
				case !ok || m.since > ver:
					wrong = "is not in the specification"
				case typ != m.typ && !(typ == "integer" && m.typ == "number") && !(typ == "integer?" && m.typ == "number?"):
					wrong = "is " + typ + " and not " + m.typ
				}
				if key := l.name + " " + path; wrong == "" || known[key] != "" {
					met[key] = met[key] || wrong != ""
				} else if parent, _, _ := cutLast(path); known[l.name+" "+parent] == "" {
					t.Errorf("%s --json=%s: %s %s", l.command, ver, path, wrong)
				} else {
					known[key] = known[l.name+" "+parent] // with its parent
					met[key] = true
				}
			}
		}
	}
	for key := range known {
		if !met[key] {
			t.Errorf("%s is Slurm's now: it need not be named in notSlurms", key)
		}
	}
}

// cutLast parts a path before its last member.
func cutLast(path string) (parent, name string, found bool) {
	i := strings.LastIndexByte(path, '.')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// typesOf gives the types of all members by their paths, as testdata/openapi.txt has them.
func typesOf(v any, path string, types map[string]string) {
	typ := ""
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["infinite"]; ok && len(v) == 3 {
			typ = numberType(v["number"]) + "?"
			break
		}
		typ = "object"
		for name, m := range v {
			typesOf(m, strings.TrimPrefix(path+"."+name, "."), types)
		}
	case []any:
		typ = "array"
		for _, m := range v {
			typesOf(m, path+"[]", types)
		}
	case string:
		typ = "string"
	case bool:
		typ = "boolean"
	case float64:
		typ = numberType(v)
	}
	// A number that happens to be whole may be one with decimals.
	if path != "" && (types[path] == "" || strings.HasPrefix(typ, "number")) {
		types[path] = typ
	}
}

func numberType(v any) string {
	if n, ok := v.(float64); ok && n == float64(int64(n)) {
		return "integer"
	}
	return "number"
}

// notSlurms names the members that Slurm's specification doesn't have, or has with another type, and why they are so.
func notSlurms() map[string]string {
	known := map[string]string{
		"jobs jobs[].job_resources.nodes.allocation[].gres": "which GPUs of the node: gbatch's own",
		"jobs jobs[].submit_line":                           "Slurm's from v0.0.44 on",
		"nodes nodes[].idle_cpus":                           "Slurm's up to v0.0.41",
		"partitions partitions[].partition.default":         "gbatch's own",
		"partitions partitions[].partition.hidden":          "gbatch's own",
		"statistics statistics.gbatch":                      "what sdiag has no words for",
		"statistics statistics.gbatch[]":                    "with its list",
		"qos qos[].limits.max.tres.total[].percent":         "gbatch's own: the count is a part of the cluster",
	}
	for _, name := range []string{"cpus", "gres", "memory"} {
		known["reservations reservations[].core_specializations[]."+name] = "a reservation of parts of nodes: gbatch's own"
	}
	for _, kind := range []string{"consumed", "requested"} {
		for _, of := range []string{"max", "min"} {
			for _, name := range []string{"node", "task"} {
				known["records jobs[].steps[].tres."+kind+"."+of+"[]."+name] = "where it was: as MaxRSSNode"
			}
		}
	}
	for _, list := range []string{"records", "pings", "statistics", "shares", "accounts", "users", "associations", "qos",
		"tres", "clusters"} {
		known[list+" last_update"] = "every list says when; Slurm's only lists of the controller's"
	}
	return known
}
