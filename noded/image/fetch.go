package image

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"gbatch/internal/plain"
)

// fetch.go talks to the process that gets an image (import.go).

// nobody is who unpacks images, and whose their files are.
const nobody = 65534

// importer is one such process.
type importer struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	said *strings.Builder
}

// Error is an image that can't be had.
type Error struct {
	Image string
	Text  string
	kind  string
}

func (e *Error) Error() string { return "the image " + e.Image + ": " + e.Text }

// startImport starts the process for an image. Its directory is dir.
func (c *Cache) startImport(ctx context.Context, dir *os.File, o *order) (*importer, error) {
	cmd := exec.CommandContext(ctx, c.o.Program[0], c.o.Program[1:]...)
	cmd.Env, cmd.Dir = proxies(), "/"
	cmd.ExtraFiles = []*os.File{dir}
	// No Pdeathsig: it comes when the thread ends that started the process, and goroutines that take users' rights end
	// threads. The process ends with its standard input.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it becomes nobody: becomeNobody
	p := &importer{cmd: cmd, said: &strings.Builder{}}
	cmd.Stderr = &head{to: p.said, rest: 4096}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the process that gets images: %w", err)
	}
	p.in, p.out = in, json.NewDecoder(bufio.NewReader(io.LimitReader(out, 2*maxConfig)))
	if err := json.NewEncoder(in).Encode(o); err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}

// proxies are the variables that say how registries are reached.
func proxies() []string {
	env := []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"}
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		switch strings.ToUpper(name) {
		case "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR":
			env = append(env, e)
		}
	}
	return env
}

// end ends the process.
func (p *importer) end() {
	_ = p.in.Close()         // it ends by that
	_ = p.cmd.Process.Kill() // or it has ended
	_ = p.cmd.Wait()         // how it ended says nothing
}

// read reads one message. The process may say the end in place of what is expected.
func (p *importer) read(ctx context.Context, image string, to any) error {
	var raw json.RawMessage
	if err := p.out.Decode(&raw); err != nil {
		why := plain.Line(strings.TrimSpace(p.said.String()))
		if ctx.Err() != nil {
			why = "it took too long, or gnoded ends"
		}
		return &Error{Image: image, Text: "the process that gets images has ended: " + cmp.Or(why, err.Error())}
	}
	var r result
	if json.Unmarshal(raw, &r) == nil && r.Error != "" {
		return &Error{Image: image, Text: plain.Line(r.Error), kind: r.Kind}
	}
	if err := json.Unmarshal(raw, to); err != nil {
		return &Error{Image: image, Text: "the process that gets images does not say what it should"}
	}
	return nil
}

// head keeps the beginning of what is written.
type head struct {
	to   *strings.Builder
	rest int
}

func (h *head) Write(b []byte) (int, error) {
	n := min(len(b), h.rest)
	h.to.Write(b[:n])
	h.rest -= n
	return len(b), nil
}
