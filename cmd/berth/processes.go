package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// processes are children, each with its log file.
type processes struct {
	log, level string

	mu    sync.Mutex
	list  []*child
	ended chan string
}

// child is one of them.
type child struct {
	name string
	cmd  *exec.Cmd
	log  string
	from int64 // bytes that earlier runs have left in the log
	over chan struct{}
}

// children are those of this program, for a second signal.
var children atomic.Pointer[processes]

// atOnce kills the children, if there are any.
func atOnce() {
	group := children.Load()
	if group == nil {
		return
	}
	group.mu.Lock()
	defer group.mu.Unlock()
	for _, c := range group.list {
		c.cmd.Process.Kill()
	}
}

// start runs the program bin beside this one. It ends with this one, however that ends.
func (p *processes) start(name, bin string, args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := &child{name: name, log: filepath.Join(p.log, name+".log"), over: make(chan struct{})}
	out, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	if c.from, err = out.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	c.cmd = exec.Command(filepath.Join(filepath.Dir(self), bin), append([]string{"--log-level", p.level}, args...)...)
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.Env = ownEnvironment()
	c.cmd.SysProcAttr = &syscall.SysProcAttr{
		Setpgid:   true,            // an interrupt reaches this program alone, which stops them in order
		Pdeathsig: syscall.SIGTERM, // and its end ends them
	}
	if err := c.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w (build it with `make build`)", bin, err)
	}
	ended := p.died()
	go func() {
		c.cmd.Wait()
		close(c.over)
		ended <- name
	}()
	p.mu.Lock()
	p.list = append(p.list, c)
	p.mu.Unlock()
	return nil
}

// ownEnvironment is this program's without the flags in it: they are meant for it, not for its children.
func ownEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "BERTH_") })
}

// lastWords are the last lines that a child's last run has left, and how it ended.
func (p *processes) lastWords(name string) string {
	for _, c := range slices.Backward(p.list) {
		if c.name != name {
			continue
		}
		said := tail(c.log, c.from)
		if said == "" {
			return fmt.Sprintf("%v, and nothing in %s (is its disk full?)", c.cmd.ProcessState, c.log)
		}
		return fmt.Sprintf("%v\n%s", c.cmd.ProcessState, said)
	}
	return "it was not started"
}

// died gives the name of each child that has ended.
func (p *processes) died() chan string {
	if p.ended == nil {
		p.ended = make(chan string, 1024)
	}
	return p.ended
}

// stop ends the children, workers first, and waits for them; those that do not end in time are killed.
func (p *processes) stop(timeout time.Duration) error {
	deadline := time.After(timeout)
	for _, c := range slices.Backward(p.list) {
		c.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-c.over:
		case <-deadline:
			c.cmd.Process.Kill()
			<-c.over
		}
	}
	return nil
}

// tail is the last lines of a file, of those after its first bytes.
func tail(path string, after int64) string {
	raw, _ := os.ReadFile(path)
	raw = raw[min(after, int64(len(raw))):]
	lines := bytes.Split(bytes.TrimSpace(raw), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-5):], []byte("\n")))
}
