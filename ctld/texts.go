package ctld

import (
	"strings"

	"gbatch/internal/wire"
)

// written names a text as the user wrote it: the option, the word before =, or the field.
func written(bad *wire.NotPlain) string {
	if bad.Key != "" {
		return bad.Key
	}
	field := bad.Field[strings.LastIndexByte(bad.Field, '.')+1:]
	if i := strings.IndexByte(field, '['); i > 0 {
		field = field[:i]
	}
	if option := optionOf[field]; option != "" && strings.HasPrefix(bad.Field, "Spec.") {
		return option
	}
	return field
}

// optionOf names the options of the fields of model.Spec and model.Needs that are texts.
var optionOf = map[string]string{"Name": "--job-name", "Account": "--account", "QOS": "--qos",
	"Partitions": "--partition", "Comment": "--comment", "Command": "the script's path", "WorkDir": "--chdir",
	"StdIn": "--input", "StdOut": "--output", "StdErr": "--error", "Features": "--constraint",
	"ReqNodes": "--nodelist", "ExcNodes": "--exclude", "DepText": "--dependency", "ArrayText": "--array",
	"Reservation": "--reservation", "Prefer": "--prefer", "GPU": "--gpu-bind", "CPU": "--cpu-bind",
	"Mem": "--mem-bind", "Dist": "--distribution", "Hint": "--hint"}
