package request

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gbatch/internal/cli/env"
	"gbatch/internal/hostlist"
	"gbatch/internal/proto"
)

// MaxScriptRead is more than any controller accepts (SchedulerParameters=max_script_size, 4 MiB by default).
const MaxScriptRead = 64 << 20

func ReadLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	if st, err := f.Stat(); err == nil && st.IsDir() {
		return nil, errors.New("Is a directory")
	}
	return io.ReadAll(io.LimitReader(f, MaxScriptRead+1))
}

// Environment gives the variables that the job gets: NAME=value, each ended by a NUL.
func Environment(e *env.Env, s *Submission) ([]byte, error) {
	var out []byte
	add := func(kv string) { out = append(append(out, kv...), 0) }
	if s.exportTo != "" {
		data, err := ReadLimited(s.exportTo)
		if err != nil {
			return nil, fmt.Errorf("--export-file=%s: %w", s.exportTo, err)
		}
		if len(data) > 0 && data[len(data)-1] != 0 {
			data = append(data, 0)
		}
		return data, nil
	}
	words := splitQuoted(s.Export)
	all := s.Export == ""
	var named []string
	for _, w := range words {
		switch {
		case strings.EqualFold(w, "ALL"):
			all = true
		case strings.EqualFold(w, "NIL"), strings.EqualFold(w, "NONE"):
		default:
			named = append(named, w)
		}
	}
	pick := func(kv string) bool {
		if s.ForStep && (strings.HasPrefix(kv, "SLURM_EXPORT_ENV=") || strings.HasPrefix(kv, "SRUN_EXPORT_ENV=")) {
			return false // it was for this step; steps that its tasks start get all of their variables
		}
		if all {
			return true
		}
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "SLURM_") {
			return true
		}
		switch name {
		case "HOME", "USER", "LOGNAME", "SHELL", "LANG":
			return s.userEnv == "" // the login shell sets them
		}
		for _, n := range named {
			if n == name {
				return true
			}
		}
		return false
	}
	path := all || s.userEnv != ""
	for _, kv := range e.Environ {
		if pick(kv) && !strings.HasPrefix(kv, "SLURM_SUBMIT_DIR=") && !strings.HasPrefix(kv, "SLURM_PRIO_PROCESS=") &&
			!strings.HasPrefix(kv, "SLURM_GET_USER_ENV=") {
			path = path || strings.HasPrefix(kv, "PATH=")
			add(kv)
		}
	}
	if !path {
		add("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	}
	for _, w := range named {
		if strings.Contains(w, "=") {
			add(w)
		}
	}
	if s.Export != "" && !strings.EqualFold(s.Export, "ALL") && !s.ForStep {
		add("SLURM_EXPORT_ENV=" + s.Export)
	}
	if s.userEnv != "" {
		add("SLURM_GET_USER_ENV=" + s.userEnv)
	}
	// These describe this submission, not the job in which it may run.
	add("SLURM_SUBMIT_DIR=" + e.Dir)
	add("SLURM_PRIO_PROCESS=" + strconv.Itoa(Niceness()))
	if len(out) > proto.MaxEnvBytes {
		return nil, fmt.Errorf("the environment is %d bytes long, the limit is %d; pass less with --export", len(out),
			proto.MaxEnvBytes)
	}
	return out, nil
}

// splitQuoted splits a comma list whose values may be quoted: ALL,A='x,y',B.
func splitQuoted(text string) []string {
	var out []string
	var word []byte
	quote := byte(0)
	for i := range len(text) {
		switch ch := text[i]; {
		case quote != 0 && ch == quote:
			quote = 0
		case quote == 0 && (ch == '\'' || ch == '"'):
			quote = ch
		case quote == 0 && ch == ',':
			out, word = append(out, string(word)), nil
		default:
			word = append(word, ch)
		}
	}
	if len(word) > 0 {
		out = append(out, string(word))
	}
	return out
}

// NodeFile reads hostlists from a file, one or several per line.
func NodeFile(path string) ([]string, error) {
	data, err := ReadLimited(path)
	if err != nil {
		return nil, err
	}
	return hostlist.Expand(strings.Join(strings.Fields(string(data)), ","))
}

// Umask gives the umask of a job's or a step's processes: this process's own, or what SLURM_UMASK says outside of a
// job. In a job the variable tells of the job, and the script may have changed its umask since.
func Umask(e *env.Env) uint32 {
	if _, in := e.Lookup("SLURM_JOB_ID"); !in {
		if n, err := strconv.ParseUint(e.Getenv("SLURM_UMASK"), 8, 32); err == nil && n <= 0o777 {
			return uint32(n)
		}
	}
	old := unix.Umask(0)
	unix.Umask(old)
	return uint32(old)
}

// Niceness gives this process's nice value, -20 to 19; 0 if it can't be read.
func Niceness() int {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil {
		return 0
	}
	return 20 - n // the system call returns 20 minus the nice value
}
