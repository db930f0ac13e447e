package model

import (
	"cmp"
	"fmt"
	"strings"

	"gbatch/internal/wire"
)

// MailWish is the request for mail about a job (--mail-user, --mail-type).
type MailWish struct {
	User  string // addresses, joined with commas
	Types MailTypes
}

func (x *MailWish) Wire(c *wire.C) {
	wire.Text(c, &x.User, MaxName)
	wire.Int(c, &x.Types)
}

// MailTypes is a set of events about which mail is sent. The bits are stored: they never change.
type MailTypes uint32

// The types, with Slurm's meaning.
const (
	MailBegin MailTypes = 1 << iota
	MailEnd
	MailFail
	MailRequeue
	MailLimit   // the time limit has been reached
	MailLimit90 // that percentage of it has passed
	MailLimit80
	MailLimit50
	MailStageOut // there is no burst buffer: never happens
	MailArrayTasks
	MailInvalidDepend
)

// mailAll is what ALL stands for.
const mailAll = MailBegin | MailEnd | MailFail | MailRequeue | MailStageOut | MailInvalidDepend

// mailNames gives the types' names in the order in which Slurm shows them.
func mailNames() []struct {
	name string
	bit  MailTypes
} {
	return []struct {
		name string
		bit  MailTypes
	}{{"ARRAY_TASKS", MailArrayTasks}, {"INVALID_DEPEND", MailInvalidDepend}, {"BEGIN", MailBegin}, {"END", MailEnd},
		{"FAIL", MailFail},
		{"REQUEUE", MailRequeue}, {"STAGE_OUT", MailStageOut}, {"TIME_LIMIT_50", MailLimit50}, {"TIME_LIMIT_80", MailLimit80},
		{"TIME_LIMIT_90", MailLimit90}, {"TIME_LIMIT", MailLimit}}
}

// mailMembers are data_parser's words for types, where they are others than those of --mail-type.
var mailMembers = map[string]string{"INVALID_DEPEND": "INVALID_DEPENDENCY", "TIME_LIMIT": "TIME=100%",
	"TIME_LIMIT_90": "TIME=90%", "TIME_LIMIT_80": "TIME=80%", "TIME_LIMIT_50": "TIME=50%"}

// Members gives the types in data_parser's words.
func (m MailTypes) Members() (out []string) {
	for _, n := range mailNames() {
		if m&n.bit != 0 {
			out = append(out, cmp.Or(mailMembers[n.name], n.name))
		}
	}
	return out
}

// ParseMailTypes reads --mail-type's value: names joined with commas, also data_parser's, ALL or NONE. As in Slurm a
// word that is none of them is passed over beside others that are.
func ParseMailTypes(text string) (MailTypes, error) {
	set, some, wrong := MailTypes(0), false, ""
	for word := range strings.SplitSeq(text, ",") {
		word = strings.ToUpper(strings.TrimSpace(word))
		switch word {
		case "":
			continue
		case "NONE":
			some = true
			continue
		case "ALL":
			set, some = set|mailAll, true
			continue
		}
		known := false
		for _, n := range mailNames() {
			if n.name == word || mailMembers[n.name] == word {
				set, known, some = set|n.bit, true, true
			}
		}
		if !known && wrong == "" {
			wrong = word
		}
	}
	if wrong != "" && !some {
		return 0, fmt.Errorf("'%s' is no type of mail; write NONE, BEGIN, END, FAIL, REQUEUE, ALL, INVALID_DEPEND, "+
			"TIME_LIMIT, TIME_LIMIT_50, TIME_LIMIT_80, TIME_LIMIT_90, STAGE_OUT or ARRAY_TASKS, joined with commas", wrong)
	}
	return set, nil
}

// String gives the names as ParseMailTypes reads them.
func (m MailTypes) String() string {
	var out []string
	for _, n := range mailNames() {
		if m&n.bit != 0 {
			out = append(out, n.name)
		}
	}
	if len(out) == 0 {
		return "NONE"
	}
	return strings.Join(out, ",")
}

// limitMails gives the percentages of a time limit about which mail can be sent, and their types.
func limitMails() [3]struct {
	percent int32
	bit     MailTypes
} {
	return [3]struct {
		percent int32
		bit     MailTypes
	}{{50, MailLimit50}, {80, MailLimit80}, {90, MailLimit90}}
}

// NextLimit gives the next percentage above done about which mail is wanted, and its type; 0 if there is none.
func (m MailTypes) NextLimit(done int32) (percent int32, bit MailTypes) {
	for _, l := range limitMails() {
		if l.percent > done && m&l.bit != 0 {
			return l.percent, l.bit
		}
	}
	return 0, 0
}

// Mail gives the job's request for mail, or nil.
func (s *Spec) Mail() *MailWish {
	if s.More == nil {
		return nil
	}
	return s.More.Mail
}

// MaxMailUsers bounds --mail-user, bytes.
const MaxMailUsers = 1024

// CheckMailUser checks --mail-user's value. A mail program gets each address as an argument and runs as the
// controller's user, so anything that it could take for an option, a file or a pipe is refused. Programs that send
// more than mail take targets with their kind before them: telegram:-1234, matrix:!room:host, discord:#channel.
func CheckMailUser(users string) error {
	if len(users) > MaxMailUsers {
		return fmt.Errorf("it is %d bytes long, the limit is %d", len(users), MaxMailUsers)
	}
	for address := range strings.SplitSeq(users, ",") {
		for i, ch := range []byte(address) {
			letter := ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z' || ch >= '0' && ch <= '9' || ch >= 0x80
			if !letter && (i == 0 && ch != '_' || !strings.ContainsRune("._%+=@&'~#:!-", rune(ch))) {
				return fmt.Errorf("'%s' is no mail address: it begins with a letter or digit and has letters, digits and "+
					"._%%+=@&'~#:!- only; several are joined with commas", address)
			}
		}
		if address == "" {
			return fmt.Errorf("an address is empty; write name@host, several joined with commas")
		}
	}
	return nil
}

// ForEnd gives the type of the mail about a job's end, or 0: FAIL for a failed job if it is wanted, otherwise END.
func (m MailTypes) ForEnd(failed bool) MailTypes {
	if failed && m&MailFail != 0 {
		return MailFail
	}
	return m & MailEnd
}
