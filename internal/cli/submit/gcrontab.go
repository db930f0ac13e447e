package submit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gbatch/internal/cli/env"
	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/request"
	"gbatch/internal/cli/script"
	"gbatch/internal/cron"
	"gbatch/internal/model"
	"gbatch/internal/proto"
	"gbatch/internal/terminal"
)

// crontab is one call of gcrontab.
type crontab struct {
	*env.Env
	edit, list, remove bool
	user               string   // whose; "": the caller's
	notes              []string // about entries, for the user

	asked map[string]error // what came of the clusters that entries name (-M)
}

// Gcrontab installs, shows, edits and removes a crontab, whose entries are jobs that come back.
func Gcrontab(e *env.Env) int {
	x := &crontab{Env: e}
	p := getopt.New(getopt.Config{Program: e.Program, Options: append([]getopt.Option{
		{Name: "edit", Short: 'e', Help: "edit the crontab with $VISUAL, $EDITOR or vi, and install what comes of it",
			Set: getopt.Flag(&x.edit)},
		{Name: "list", Short: 'l', Help: "print the crontab", Set: getopt.Flag(&x.list)},
		{Name: "remove", Short: 'r', Help: "remove the crontab; its jobs that run go on, and don't come back",
			Set: getopt.Flag(&x.remove)},
		{Name: "user", Short: 'u', Arg: getopt.Required, Metavar: "user",
			Help: "of another user: operators may list it, administrators change it", Set: getopt.Text(&x.user)},
		{Name: "verbose", Short: 'v', Hidden: true, Note: "there is nothing more to say",
			Set: func(string) error { return nil }},
	}, getopt.HelpOptions('h')...),
		Operands: "[file | -]", OperandValues: getopt.Operands(getopt.Values{Kind: getopt.Files}),
		About: "Install a crontab from a file or from standard input (-): jobs that run at certain times, again and again. " +
			"Each line has minute, hour, day of the month, month, day of the week and a command; lines with #SCRON before " +
			"it hold gsubmit's options. Without a file and options, a terminal edits it."})
	operands, err := p.Parse(e.Args, e.Lookup)
	if err != nil {
		return e.Usage(p, err)
	}
	ways := 0
	for _, way := range [...]bool{x.edit, x.list, x.remove, len(operands) > 0} {
		if way {
			ways++
		}
	}
	if ways > 1 || len(operands) > 1 {
		e.Errorf("give one of a file, -e, -l and -r\n%s", strings.TrimRight(p.Usage(), "\n"))
		return 1
	}
	switch {
	case x.list:
		err = x.print()
	case x.remove:
		err = x.set(&proto.SetCrontabRequest{Remove: true}, nil)
	case x.edit || len(operands) == 0 && x.atTerminal():
		err = x.change()
	default:
		err = x.installFile(append(operands, "-")[0])
	}
	if err != nil {
		if !errors.Is(err, errTold) {
			e.Errorf("%s", env.Text(err))
		}
		return 1
	}
	return 0
}

// errTold is an error that the user has been told of.
var errTold = errors.New("told")

func (x *crontab) atTerminal() bool {
	f, is := x.Stdin.(*os.File)
	if !is {
		return false
	}
	_, err := terminal.ModesOf(int(f.Fd()))
	return err == nil
}

// fetch gives the crontab as it is; entries that were cancelled are comments.
func (x *crontab) fetch() (text string, r *proto.CrontabReply, err error) {
	c, err := x.Connect()
	if err != nil {
		return "", nil, err
	}
	defer c.Close()
	r = &proto.CrontabReply{}
	if err := c.Call(proto.KindCrontab, &proto.CrontabRequest{User: x.user}, r); err != nil {
		return "", nil, err
	}
	if r.Why != "" {
		fmt.Fprintf(x.Stderr, "%s: no entry of this crontab runs any more: %s; look at it, and install it again\n",
			x.Program, r.Why)
	}
	text = string(r.Text)
	if len(r.Off) > 0 {
		text = cron.Mark(text, "#DISABLED: ", func(line int) bool {
			return slices.ContainsFunc(r.Off, func(o model.Lines) bool { return int(o.First) <= line && line <= int(o.Last) })
		})
	}
	return text, r, nil
}

func (x *crontab) print() error {
	text, r, err := x.fetch()
	if err != nil {
		return err
	}
	if !r.There {
		fmt.Fprintf(x.Stderr, "no crontab for %s\n", r.User)
		return errTold
	}
	return x.Content([]byte(text))
}

// installFile installs what a file holds, or standard input.
func (x *crontab) installFile(name string) error {
	in := x.Stdin
	if name != "-" {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(x.Dir, path)
		}
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("Unable to open file %s: %w", name, env.PlainExec(err))
		}
		defer f.Close() //nolint:errcheck // only read
		in = f
	}
	text, err := readCrontab(in)
	if err != nil {
		return fmt.Errorf("%s: %w", name, env.PlainExec(err))
	}
	if bad := x.install(text); bad != nil {
		if bad.First > 0 {
			x.Errorf("there is an error in the crontab, and nothing has changed")
		}
		return bad.err
	}
	return nil
}

// readCrontab reads no more than what shows that a crontab is too long.
func readCrontab(in io.Reader) (string, error) {
	data, err := io.ReadAll(io.LimitReader(in, cron.MaxText+1))
	return string(data), err
}

// wrong is why a crontab can't be installed: for what is in these lines, or, if they are 0, as a whole.
type wrong struct {
	model.Lines
	err error
}

// install makes jobs of the crontab's entries and sends all of it; nil: it is installed.
func (x *crontab) install(text string) *wrong {
	entries, err := cron.Read(text)
	var at *cron.LineError
	if errors.As(err, &at) {
		return &wrong{model.Lines{First: int32(at.Line), Last: int32(at.Line)}, err}
	}
	home, err := x.home()
	if err != nil {
		return &wrong{err: err}
	}
	x.notes, x.asked = nil, map[string]error{} // asked anew each time: a controller may be back
	rq := &proto.SetCrontabRequest{Text: []byte(text)}
	for i := range entries {
		job, err := x.job(&entries[i], home)
		if err != nil {
			return &wrong{linesOf(&entries[i]), fmt.Errorf("line %d: %w", entries[i].Last, err)}
		}
		rq.Jobs = append(rq.Jobs, *job)
	}
	bad := &wrong{}
	if bad.err = x.set(rq, &bad.Lines); bad.err != nil {
		return bad
	}
	return nil
}

func linesOf(e *cron.Entry) model.Lines {
	return model.Lines{First: int32(e.First), Last: int32(e.Last)}
}

// set sends the request. bad gets the lines of the entry that was refused.
func (x *crontab) set(rq *proto.SetCrontabRequest, bad *model.Lines) error {
	c, err := x.Connect()
	if err != nil {
		return err
	}
	defer c.Close()
	rq.User = x.user
	var r proto.SetCrontabReply
	if err := c.Call(proto.KindSetCrontab, rq, &r); err != nil {
		return err
	}
	if r.Refused != "" && bad != nil {
		*bad = r.Entry
		return fmt.Errorf("line %d: %s", r.Entry.Last, r.Refused)
	}
	for _, n := range slices.Concat(x.notes, r.Notes) {
		fmt.Fprintf(x.Stderr, "%s: %s\n", x.Program, n)
	}
	return nil
}

// home gives the directory in which the jobs run.
func (x *crontab) home() (string, error) {
	name := x.user
	if name == "" {
		name = strconv.Itoa(os.Getuid())
	}
	u, err := user.LookupId(name)
	if err != nil {
		u, err = user.Lookup(name)
	}
	if err == nil && filepath.IsAbs(u.HomeDir) {
		return u.HomeDir, nil
	}
	if dir := x.Getenv("HOME"); x.user == "" && filepath.IsAbs(dir) {
		return dir, nil
	}
	return "", fmt.Errorf("the home directory of user %s, where the jobs run, is not known on this host", name)
}

// noComingBack are gsubmit's options that have no meaning for a job that comes back, with what to do instead.
var noComingBack = [][2]string{
	{"array", "let the entry's command be a gsubmit of the array"},
	{"begin", "the entry's times say when its job begins"},
	{"deadline", "give a --time"},
	{"each", "let the entry's command be gsubmit --each"},
	{"test-only", "leave it out"},
	{"wait", "leave it out"},
	{"wrap", "the entry's own line has the command"},
}

// job makes the submission of an entry. As in Slurm it has the environment of a login, not that of this command, and no
// variable of this command's sets an option.
func (x *crontab) job(entry *cron.Entry, home string) (*proto.SubmitRequest, error) {
	e := *x.Env
	e.Dir, e.Environ, e.Lookup = home, nil, func(string) (string, bool) { return "", false }
	s := &request.Submission{}
	p := getopt.New(getopt.Config{Program: e.Program, Options: s.Options(e.ReadDate), Order: getopt.StopAtOperand})
	s.Spec.Name, s.Spec.Command = strings.Fields(entry.Command)[0], entry.Command
	body := "#!/bin/sh\n# An entry of a crontab, due at: " + entry.Schedule.String() + "\n"
	for _, o := range entry.Options {
		body += cron.Directive + o.Text + "\n"
		d, err := script.Parse([]byte("#SBATCH" + o.Text + "\n"))
		if err != nil {
			return nil, fmt.Errorf("%s%s: %s", cron.Directive, o.Text, strings.TrimPrefix(err.Error(), "line 1: "))
		}
		for _, w := range d.Warnings {
			x.notes = append(x.notes, fmt.Sprintf("line %d: warning: %s", o.Line, w.Text))
		}
		for _, words := range d.Directives {
			if words.Het {
				return nil, errors.New("heterogeneous jobs don't come back: let the entry's command be a gsubmit of the job")
			}
			if err := p.Directive(words.Args, fmt.Sprintf("line %d", o.Line)); err != nil {
				return nil, x.bare(err)
			}
		}
	}
	if err := x.Filter("gsubmit", []*getopt.Parser{p}, nil); err != nil {
		return nil, err
	}
	for _, o := range noComingBack {
		if _, given := p.Value(o[0]); given {
			return nil, fmt.Errorf("--%s is not for jobs that come back: %s", o[0], o[1])
		}
	}
	if err := p.Apply(); err != nil {
		return nil, x.bare(err)
	}
	s.LoginOnly()
	rq, err := request.New(&e, s, []byte(body+entry.Command+"\n"))
	if err != nil {
		return nil, err
	}
	for _, text := range slices.Concat(s.Remarks, s.Warnings) {
		x.notes = append(x.notes, fmt.Sprintf("line %d: %s", entry.Last, text))
	}
	if len(s.Clusters) > 0 {
		if err := x.onCluster(s.Clusters); err != nil {
			return nil, err
		}
	}
	if !rq.Spec.OwnLimits {
		rq.Spec.Limits = nil // those of this command's shell mean nothing for it
	}
	rq.Spec.SID = 0
	at := linesOf(entry)
	rq.Spec.Cron = &model.Cron{Times: entry.Schedule.String(), First: at.First, Last: at.Last}
	return rq, nil
}

// onCluster is OnCluster, once for all entries that name the same ones.
func (x *crontab) onCluster(names []string) error {
	key := strings.Join(names, ",")
	err, known := x.asked[key]
	if !known {
		err = x.OnCluster(names)
		x.asked[key] = err
	}
	return err
}

// bare gives the first line of an error about an option, without this command's name: the entry's line comes before it.
func (x *crontab) bare(err error) error {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(strings.TrimPrefix(strings.TrimPrefix(text, x.Program+": "), "error: "))
}
