package acctmgr

import (
	"fmt"
	"slices"
	"strings"
)

// word is one word of a command after its entity: key=value, key+=value, key-=value, or a bare word.
type word struct {
	key   string // lower case; "" of a bare word
	op    byte   // '=', '+' or '-'
	value string
	text  string // as it was written
}

// split reads the words after the entity into conditions ("where ...") and settings ("set ..."). Without either word
// all are conditions.
func split(args []string) (where, set []word) {
	to := &where
	for _, a := range args {
		switch strings.ToLower(a) {
		case "where":
			to = &where
			continue
		case "set":
			to = &set
			continue
		}
		*to = append(*to, read(a))
	}
	return where, set
}

// given refuses a condition that names nothing: an unset variable of a script must not mean everybody.
func given(where []word) error {
	for _, w := range where {
		if len(names(w.value)) == 0 {
			return fmt.Errorf(" The condition '%s' names nothing, not executing.  Leave it out if all are meant.", w.text)
		}
	}
	return nil
}

func read(a string) word {
	key, value, ok := strings.Cut(a, "=")
	if !ok {
		return word{op: '=', value: unquote(a), text: a}
	}
	w := word{op: '=', value: unquote(value), text: a}
	if n := len(key); n > 1 && (key[n-1] == '+' || key[n-1] == '-') {
		w.op, key = key[n-1], key[:n-1]
	}
	w.key = strings.ToLower(strings.TrimSpace(key))
	return w
}

// unquote drops quotes that reached the command: format='a,b' from a script that quotes twice, QosLevel=” to clear.
func unquote(s string) string {
	s = strings.TrimSpace(s)
	if n := len(s); n >= 2 && (s[0] == '\'' || s[0] == '"') && s[n-1] == s[0] {
		return s[1 : n-1]
	}
	return s
}

// names reads a comma list of names, in lower case as they are kept.
func names(v string) []string {
	var out []string
	for n := range strings.SplitSeq(v, ",") {
		if n = strings.ToLower(strings.TrimSpace(n)); n != "" && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// is reports whether a key is one of some names, or a prefix of at least least letters.
func is(key string, least int, names ...string) bool {
	for _, n := range names {
		if key == n || len(key) >= least && strings.HasPrefix(n, key) {
			return true
		}
	}
	return false
}

// checkName refuses a name that could not be written in lists.
func checkName(what, name string) error {
	if len(name) > maxName {
		return fmt.Errorf(" %s '%.20s...' is longer than %d letters", what, name, maxName)
	}
	if i := strings.IndexFunc(name,
		func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("|,=/'\"\\", r) }); i >= 0 {
		return fmt.Errorf(" %s '%s' contains '%c', which would tear lists; use letters, digits, _ - and .", what,
			name, name[i])
	}
	return nil
}

// maxName bounds names, bytes.
const maxName = 128

// unknown is the error for a key that has no meaning here.
func unknownCondition(w word) error {
	return fmt.Errorf(" Unknown condition: %s\n Use keyword 'set' to modify value", w.text)
}

// misplacedOption is the error for a setting that other records have, but not these.
func misplacedOption[T any](list []attr[T], w word) error {
	key := w.key
	_, ofQOS := any(list).([]attr[qos])
	if a := find(assocAttrs(), key); ofQOS && a != nil {
		return fmt.Errorf(" %s belongs to accounts and users, not to a QOS: gacctmgr modify account where "+
			"name=ACCOUNT set %[1]s=...", a.label)
	}
	if a := find(qosAttrs(), key); !ofQOS && a != nil {
		return fmt.Errorf(" %s belongs to a QOS: gacctmgr modify qos where name=QOS set %[1]s=..., and set QOS+=QOS gives "+
			"it to accounts and users", a.label)
	}
	return fmt.Errorf(" Unknown option: %s\n Use keyword 'where' to modify condition", w.text)
}
