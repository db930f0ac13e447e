package run

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/getopt"
	"gbatch/internal/cli/request"
	"gbatch/internal/hostlist"
	"gbatch/internal/model"
	"gbatch/internal/model/container"
	"gbatch/internal/proto"
)

// command.go finds what a step's tasks run, and where a file says that they run.

// command finds the programs that the tasks run.
func (r *run) command(operands []string) error {
	rq := &r.rq
	if r.multi {
		progs, err := r.readMulti(operands[0], operands[1:])
		if err != nil {
			return err
		}
		rq.Multi, r.multiFile = progs, operands[0]
		if rq.Name == "" {
			rq.Name = filepath.Base(operands[0])
		}
		return nil
	}
	rq.Argv, rq.Program = operands, r.program(operands[0])
	if rq.Name == "" {
		rq.Name = filepath.Base(operands[0])
	}
	return nil
}

// container gives the step's container, which an option asks for.
func (r *run) container() *container.Wish {
	if r.rq.Container == nil {
		r.rq.Container = &container.Wish{}
	}
	return r.rq.Container
}

// program finds a command as a shell does; a missing one fails later, at its start.
func (r *run) program(name string) string {
	if r.rq.Container != nil {
		return name // it is looked for in the container
	}
	if strings.Contains(name, "/") {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(r.rq.Dir, name)
	}
	for _, dir := range filepath.SplitList(r.Getenv("PATH")) {
		full := filepath.Join(dir, name)
		if !filepath.IsAbs(full) {
			full = filepath.Join(r.Dir, full)
		}
		if st, err := os.Stat(full); err == nil && st.Mode().IsRegular() && unix.Access(full, unix.X_OK) == nil {
			return full
		}
	}
	return filepath.Join(r.rq.Dir, name)
}

// maxMultiLines bounds the file of --multi-prog.
const maxMultiLines = 4096

// readMulti reads the file of --multi-prog: each line has the numbers of some tasks and their command.
func (r *run) readMulti(path string, rest []string) ([]proto.StepProgram, error) {
	if len(rest) > 0 {
		return nil, errors.New("--multi-prog takes one operand, the file that names the commands")
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(r.Dir, path)
	}
	data, err := request.ReadLimited(path)
	if err != nil {
		return nil, fmt.Errorf("Could not open multi_prog config file %s: %w", path, reason(err))
	}
	data = []byte(strings.ReplaceAll(string(data), "\\\n", " "))
	var out []proto.StepProgram
	for i, line := range strings.Split(string(data), "\n") {
		words, err := shellWords(line)
		if err != nil {
			return nil, fmt.Errorf("%s line %d: %w", path, i+1, err)
		}
		if len(words) == 0 {
			continue
		}
		if len(words) < 2 || len(out) == maxMultiLines {
			return nil, fmt.Errorf("%s line %d: write task numbers and a command, such as 1-3 ./worker %%t", path, i+1)
		}
		m := proto.StepProgram{Argv: words[1:], Program: r.program(words[1])}
		if words[0] == "*" {
			m.Ranks = model.TaskSet{{Lo: 0, Hi: proto.MaxStepTasks - 1, Step: 1}}
		} else if m.Ranks, _, err = model.ParseTaskSet(words[0], proto.MaxStepTasks); err != nil {
			return nil, fmt.Errorf("%s line %d: '%s' are no task numbers; write 0, 1-3, 4,6 or *", path, i+1, words[0])
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s names no command", path)
	}
	return out, nil
}

// shellWords splits a line into words; quotes keep blanks, # begins a comment.
func shellWords(line string) ([]string, error) {
	var out []string
	var word []byte
	in, quote := false, byte(0)
	for i := 0; i < len(line); i++ {
		switch ch := line[i]; {
		case quote != 0 && ch == quote:
			quote = 0
		case quote != 0:
			word = append(word, ch)
		case ch == '\'' || ch == '"':
			quote, in = ch, true
		case ch == '\\' && i+1 < len(line):
			i++
			word, in = append(word, line[i]), true
		case ch == ' ' || ch == '\t' || ch == '\r':
			if in {
				out = append(out, string(word))
			}
			word, in = nil, false
		case ch == '#' && !in:
			return out, nil
		default:
			word, in = append(word, ch), true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("a %c is not closed", quote)
	}
	if in {
		out = append(out, string(word))
	}
	return out, nil
}

// setRanks gives each task its node, for --distribution=arbitrary. counted says that the user has given the number of
// tasks.
func (r *run) setRanks(counted bool) (err error) {
	n := &r.rq.Need
	if n.Ranks = n.Nodes; len(n.Ranks) == 0 {
		if n.Ranks, err = r.hostFile(); err != nil {
			return err
		}
	}
	switch {
	case !counted:
		n.Tasks = 0
	case int(n.Tasks) < len(n.Ranks):
		n.Ranks = n.Ranks[:n.Tasks]
	case int(n.Tasks) > len(n.Ranks):
		return fmt.Errorf("--distribution=arbitrary: %d tasks, and the list of nodes has %d", n.Tasks, len(n.Ranks))
	}
	n.Nodes = nil
	return nil
}

// hostFile reads SLURM_HOSTFILE for --distribution=arbitrary: the node of each task.
func (r *run) hostFile() ([]string, error) {
	path := r.Getenv("SLURM_HOSTFILE")
	switch list := r.Getenv("SLURM_ARBITRARY_NODELIST"); {
	case path != "":
	case list != "": // the job's own --nodelist
		return hostlist.Expand(list)
	default:
		return nil, errors.New(
			"--distribution=arbitrary needs the environment variable SLURM_HOSTFILE: a file with the node of each task")
	}
	data, err := request.ReadLimited(path)
	if err != nil {
		return nil, fmt.Errorf("SLURM_HOSTFILE: %w", err)
	}
	var out []string
	for _, word := range strings.Fields(strings.ReplaceAll(string(data), ",", " ")) {
		names, err := hostlist.Expand(word)
		if err != nil {
			return nil, fmt.Errorf("SLURM_HOSTFILE %s: %w", path, err)
		}
		if out = append(out, names...); len(out) > proto.MaxStepTasks {
			return nil, fmt.Errorf("SLURM_HOSTFILE %s names more than %d tasks", path, proto.MaxStepTasks)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("Hostlist is empty! SLURM_HOSTFILE " + path + " names no node")
	}
	return out, nil
}

// stepEnvironment gives the tasks' variables.
func (r *run) stepEnvironment() ([]byte, error) {
	said := r.saidVariables()
	var out []byte
	if e := r.export.Export; e == "" || strings.EqualFold(e, "ALL") {
		size := 0
		for _, kv := range r.Environ {
			size += len(kv) + 1
		}
		out = make([]byte, 0, size)
		for _, kv := range r.Environ {
			name, _, _ := strings.Cut(kv, "=")
			if _, anew := said[name]; !anew && name != "SLURM_PRIO_PROCESS" {
				out = append(append(out, kv...), 0)
			}
		}
		// Where the command is, and how nice; in a job, what the job says of the directory goes on.
		if _, in := r.Lookup("SLURM_SUBMIT_DIR"); !in {
			out = append(append(out, "SLURM_SUBMIT_DIR="+r.Dir...), 0)
		}
		out = append(append(out, "SLURM_PRIO_PROCESS="+strconv.Itoa(request.Niceness())...), 0)
	} else {
		r.export.ForStep = true
		var err error
		e := *r.Env
		e.Environ = slices.DeleteFunc(slices.Clone(e.Environ), func(kv string) bool {
			name, _, _ := strings.Cut(kv, "=")
			_, anew := said[name]
			return anew
		})
		if out, err = request.Environment(&e, &r.export); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(said)) {
		out = append(append(out, name+"="+said[name]...), 0)
	}
	if len(out) > proto.MaxEnvBytes {
		return nil, fmt.Errorf("the environment is %d bytes long, the limit is %d; pass less with --export", len(out),
			proto.MaxEnvBytes)
	}
	return out, nil
}

// infoLevel is SRUN_DEBUG without --verbose and --quiet.
const infoLevel = 3

// saidVariables are variables by which the tasks know options of the command.
func (r *run) saidVariables() map[string]string {
	level := infoLevel + r.verbose
	if r.quiet {
		level--
	}
	out := map[string]string{"SRUN_DEBUG": strconv.Itoa(level)}
	if r.label {
		out["SLURM_LABELIO"] = "1"
	}
	if n := &r.rq.Need; !r.shell {
		for name, value := range map[string]int32{"SLURM_NTASKS_PER_NODE": n.TasksPerNode,
			"SLURM_NTASKS_PER_GPU": n.TasksPerGPU, "SLURM_THREADS_PER_CORE": n.ThreadsCore} {
			if value > 0 {
				out[name] = strconv.Itoa(int(value))
			}
		}
		for name, option := range map[string]string{"SLURM_NTASKS_PER_CORE": "ntasks-per-core",
			"SLURM_NTASKS_PER_SOCKET": "ntasks-per-socket"} {
			if value, given := r.line.Value(option); given {
				out[name] = value
			}
		}
	}
	if freq, given := r.line.Value("cpu-freq"); given {
		out["SLURM_CPU_FREQ_REQ"], _ = request.CPUFreq(freq) // it was checked
	}
	if r.line.Given("job-name").Source == getopt.FromArgs {
		out["SLURM_JOB_NAME"] = r.rq.Name
	}
	return out
}

// canExecute reports whether the step's program is here and may be started: SLURM_TEST_EXEC asks before the step.
func (r *run) canExecute() bool {
	if r.multi || len(r.rq.Argv) == 0 {
		return true
	}
	name := r.rq.Argv[0]
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		name = filepath.Join(r.rq.Dir, name)
	}
	_, err := exec.LookPath(name)
	return err == nil
}
