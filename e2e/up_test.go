//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// freePorts are addresses of loopback that nobody listens on.
func freePorts(t *testing.T, n int) (out []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out
}

// up starts `berth up` among variables that are meant for other programs, and names its children.
func up(t *testing.T, data string) (p *process, children []int) {
	t.Helper()
	at := freePorts(t, 5)
	t.Setenv("BERTH_PEERS", "nonsense")
	t.Setenv("BERTH_DEVICE", "nonsense")
	t.Setenv("BERTH_CONFIG", "")
	t.Setenv("BERTH_WORKERS", "2")
	p = spawn(t, "up", "berth", "up", "--model", tinyModel, "--http", at[0], "--rpc", at[1], "--admin", at[2], "--raft", at[3],
		"--traces", at[4], "--data", data)
	await(t, "its router and workers", 10*time.Second, func() error {
		if children = childrenOf(p.cmd.Process.Pid); len(children) != 3 {
			return fmt.Errorf("%d children", len(children))
		}
		return nil
	})
	return p, children
}

// runs says whether a process is there and no zombie.
func runs(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := bytes.Cut(raw, []byte(") "))
	return err == nil && len(after) > 0 && after[0] != 'Z'
}

// However up ends, its children end with it and leave their ports; what the environment says to up is not said to them.
func TestUpTakesItsChildrenAlong(t *testing.T) {
	for name, end := range map[string]func(*process){
		"its terminal closes": func(p *process) {
			p.cmd.Process.Signal(syscall.SIGHUP)
			<-p.ended
			if code := p.cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		},
		"it is killed": func(p *process) { p.kill() },
		"Ctrl-C, Ctrl-C": func(p *process) {
			p.cmd.Process.Signal(syscall.SIGINT)
			p.cmd.Process.Signal(syscall.SIGINT)
			<-p.ended
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, children := up(t, t.TempDir())
			end(p)
			await(t, "the children's end", time.Minute, func() error {
				for _, pid := range children {
					if runs(pid) {
						return fmt.Errorf("%d runs", pid)
					}
				}
				return nil
			})
		})
	}
}

// childrenOf looks for processes by their parent.
func childrenOf(parent int) (out []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, stat := range stats {
		raw, err := os.ReadFile(stat)
		if err != nil {
			continue
		}
		_, after, _ := strings.Cut(string(raw), ") ")
		if f := strings.Fields(after); len(f) > 1 && f[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
			out = append(out, pid)
		}
	}
	return out
}

// A start that fails shows what this start said, not what an earlier one did.
func TestUpShowsThisStartsErrors(t *testing.T) {
	data, at := t.TempDir(), freePorts(t, 4)
	if err := os.WriteFile(filepath.Join(data, "router.log"), []byte("an error of long ago\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	out, err := exec.Command("../bin/berth", "up", "--model", tinyModel, "--http", taken.Addr().String(), "--rpc", at[0],
		"--admin", at[1], "--raft", at[2], "--traces", at[3], "--data", data).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "address already in use") ||
		strings.Contains(string(out), "long ago") {
		t.Errorf("%v: %s", err, out)
	}
}

// Ctrl-C ends a command that waits for its input, with the shell's exit code and no error.
func TestInterruptedCommands(t *testing.T) {
	for _, args := range [][]string{{"complete", "--model", "m"}, {"chat", "--model", "m"}} {
		cmd := exec.Command("../bin/berth", args...)
		in, err := cmd.StdinPipe() // which stays open
		if err != nil {
			t.Fatal(err)
		}
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, "the signal to be waited for", 10*time.Second, func() error { return reads(cmd.Process.Pid) })
		cmd.Process.Signal(syscall.SIGINT)
		err = cmd.Wait()
		in.Close()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 130 || strings.Contains(said.String(), "error") {
			t.Errorf("%v: %v, %s", args, err, said.String())
		}
	}
}

// reads says why a process does not wait for its standard input yet.
func reads(pid int) error {
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, one := range tasks {
		call, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/syscall", pid, one.Name()))
		if strings.HasPrefix(string(call), "0 0x0 ") { // read(0, …)
			return nil
		}
	}
	return errors.New("it does not read")
}
