package manage

import (
	"slices"
	"strings"

	"gbatch/internal/acctmgr"
	"gbatch/internal/cli/getopt"
)

// complete.go completes gacctmgr's words: VERB ENTITY KEY=VALUE.

var verbs = []getopt.Word{{Text: "add", Help: "make accounts, users, QOS, coordinators"},
	{Text: "modify", Help: "change them, or records of jobs: where ... set ..."}, {Text: "delete", Help: "remove them"},
	{Text: "show", Help: "list them"}, {Text: "clear", Help: "clear stats: begin counting anew"},
	{Text: "dump", Help: "write everything into a file"}, {Text: "load", Help: "read a file of dump"}, {Text: "version"}}

// operands gives what may stand after some words of a gacctmgr command.
func operands(before []string, typed string) getopt.Values {
	if len(before) == 0 {
		return getopt.Values{Words: verbs}
	}
	verb := strings.ToLower(before[0])
	if verb == "dump" || verb == "load" {
		v := getopt.Values{Kind: getopt.Files}
		if strings.HasPrefix(typed, "file=") {
			v.Head = len("file=")
		}
		return v
	}
	if len(before) == 1 && verb == "clear" {
		return getopt.Fields("stats")
	}
	if len(before) == 1 {
		v := getopt.Fields("account", "user", "association", "qos", "coordinator", "credit", "budget", "invoice")
		if v.List = false; strings.HasPrefix("show", verb) || strings.HasPrefix("list", verb) {
			v.Words = append(v.Words, getopt.Fields("tree", "cluster", "tres", "wckey", "event", "transaction", "balance",
				"price", "pool", "configuration").Words...)
		}
		if strings.HasPrefix("modify", verb) || strings.HasPrefix("update", verb) {
			v.Words = append(v.Words, getopt.Word{Text: "job"})
		}
		return v
	}
	entity := strings.ToLower(before[1])
	if key, _, has := strings.Cut(typed, "="); has {
		v := valuesOf(entity, strings.TrimRight(strings.ToLower(key), "+-"))
		v.Head = len(key) + 1
		return v
	}
	v := getopt.Values{}
	if last := before[len(before)-1]; len(before) == 2 && !slices.Contains([]string{"where", "set"}, last) {
		v = names(entity) // a name may stand without name=
	}
	if table := historyOf(entity); table != "" {
		for _, k := range pastKeys[table] {
			v.Words = append(v.Words, getopt.Word{Text: k + "="})
		}
		return v
	}
	if e := moneyOf(entity); e != "" {
		v := getopt.Values{}
		for _, k := range moneyKeys[e] {
			if k != "unfinished" {
				k += "="
			}
			v.Words = append(v.Words, getopt.Word{Text: k})
		}
		return v
	}
	if entity == "job" {
		list := jobConditions
		if slices.Contains(before, "set") {
			list = jobSettings
		}
		v = getopt.Values{}
		for _, k := range list {
			v.Words = append(v.Words, getopt.Word{Text: k + "="})
		}
	}
	for _, k := range acctmgr.Keys(entity) {
		v.Words = append(v.Words, getopt.Word{Text: k + "="})
	}
	switch {
	case strings.HasPrefix("show", verb) || strings.HasPrefix("list", verb):
		v.Words = append(v.Words, getopt.Word{Text: "format="})
	case strings.HasPrefix("modify", verb) || strings.HasPrefix("update", verb):
		v.Words = append(v.Words, getopt.Word{Text: "where"}, getopt.Word{Text: "set"})
	}
	return v
}

// names gives the names of an entity's records.
func names(entity string) getopt.Values {
	v := getopt.Values{List: true}
	switch {
	case strings.HasPrefix("users", entity):
		v.Kind = getopt.Users
	case strings.HasPrefix("qos", entity):
		v.Kind = getopt.QOS
	case strings.HasPrefix("accounts", entity):
		v.Kind = getopt.Accounts
	case strings.HasPrefix("wckeys", entity):
		v.Kind = getopt.WCKeys
	}
	return v
}

// valuesOf gives the values of a key.
func valuesOf(entity, key string) getopt.Values {
	switch key {
	case "name", "names":
		return names(entity)
	case "account", "accounts", "parent", "defaultaccount":
		return getopt.Values{Kind: getopt.Accounts, List: true}
	case "user", "users":
		return getopt.Values{Kind: getopt.Users, List: true}
	case "partition":
		return getopt.Values{Kind: getopt.Partitions}
	case "wckey", "wckeys", "defaultwckey", "newwckey":
		return getopt.Values{Kind: getopt.WCKeys, List: true}
	case "qos", "defaultqos", "preempt":
		return getopt.Values{Kind: getopt.QOS, List: true}
	case "adminlevel":
		return getopt.Values{Words: getopt.Fields("None", "Operator", "Administrator").Words}
	}
	return getopt.Values{}
}
