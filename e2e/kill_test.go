//go:build e2e

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// TestWorkerIsKilled ends one of two workers by kill -9 under load: its streams end with one clear error, its incarnation
// is fenced, the other serves on; restarted it is a new incarnation.
func TestWorkerIsKilled(t *testing.T) {
	c := startCluster(t)
	c.addWorker("w1", tinyModel, "--kv-memory", "16MiB")
	c.addWorker("w2", tinyModel, "--kv-memory", "16MiB")
	before, _ := c.state()
	var wg sync.WaitGroup
	var mu sync.Mutex
	ok, lost := 0, 0
	for i := range 32 {
		wg.Go(func() {
			a, err := c.post(t.Context(), "/v1/completions", greedyModel(ids(uint64(i), 40), 900))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil && a.status == 200:
				ok++
			case err == nil && a.status == 502 && a.Error.Berth["id"] == "WRK-002":
				lost++
			default:
				t.Errorf("request %d: %v, status %d, %+v", i, err, a.status, a.Error)
			}
		})
	}
	await(t, "both to run", 20*time.Second, func() error {
		s, err := c.state()
		if err != nil || s.Workers[0].Running == 0 || s.Workers[1].Running == 0 {
			return fmt.Errorf("%v %v", s.Workers, err)
		}
		return nil
	})
	c.workers[1].kill()
	wg.Wait()
	if ok == 0 || lost == 0 {
		t.Errorf("%d requests finished, %d were lost with the worker", ok, lost)
	}
	c.awaitReady(1)
	if _, err := c.complete(greedy(ids(5, 30), 20)); err != nil {
		t.Errorf("the other worker: %v", err)
	}
	c.awaitDrained()
	c.workers = c.workers[:1]
	c.addWorker("w2", tinyModel, "--kv-memory", "16MiB")
	after, _ := c.state()
	if after.Workers[1].ID != "w2" || after.Workers[1].Incarnation <= before.Workers[1].Incarnation {
		t.Errorf("incarnations %v, then %v", before.Workers, after.Workers)
	}
}

// TestRouterIsKilled ends the router by kill -9 under load. Restarted on its data it has the same state at the same
// revisions (P8), workers come back to it, and what the dead session held is returned.
func TestRouterIsKilled(t *testing.T) {
	c := startCluster(t)
	c.addWorker("w1", tinyModel, "--kv-memory", "16MiB")
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() { c.post(t.Context(), "/v1/completions", greedyModel(ids(uint64(i), 40), 900)) }) // the router dies under it
	}
	await(t, "requests to run", 20*time.Second, func() error {
		s, err := c.state()
		if err != nil || s.Workers[0].Running < 4 || len(s.Digests) == 0 {
			return fmt.Errorf("%v %v", s.Workers, err)
		}
		return nil
	})
	first, err := c.state()
	if err != nil {
		t.Fatal(err)
	}
	var before state
	await(t, "a tick under load", 20*time.Second, func() (err error) {
		before, err = c.state()
		if err == nil && before.Digests[len(before.Digests)-1].Revision <= first.Revision {
			err = fmt.Errorf("revision %d has no tick after it", first.Revision)
		}
		return err
	})
	killed := time.Now()
	c.restartRouter()
	wg.Wait()
	c.awaitReady(1)
	after, err := c.state()
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for _, d := range before.Digests {
		for _, e := range after.Digests {
			if d.Revision == e.Revision {
				if same++; d.Digest != e.Digest {
					t.Errorf("revision %d: digest %s before, %s after", d.Revision, d.Digest, e.Digest)
				}
			}
		}
	}
	if same == 0 {
		t.Errorf("no revision to compare: %v, %v", before.Digests, after.Digests)
	}
	c.awaitDrained()
	t.Logf("%d digests equal; everything returned %v after the kill", same, time.Since(killed).Round(time.Millisecond))
	if _, err := c.complete(greedy(ids(5, 30), 20)); err != nil {
		t.Error(err)
	}
}

// TestSuperseded starts a second process under a worker's name: the first one exits.
func TestSuperseded(t *testing.T) {
	c := startCluster(t)
	first := c.addWorker("w1", tinyModel, "--kv-memory", "16MiB")
	second := c.addSame("w1")
	select {
	case <-first.ended:
	case <-time.After(10 * time.Second):
		t.Fatal("the superseded worker lives on")
	}
	if code := first.cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("it exited with %d", code)
	}
	if _, err := c.complete(greedy(ids(5, 30), 20)); err != nil {
		t.Error(err)
	}
	if code := second.term(); code != 0 {
		t.Errorf("the second one drained with %d", code)
	}
}

// addSame starts another process under a name that is taken.
func (c *cluster) addSame(name string) *process {
	return spawn(c.t, name+" again", "worker", "--id", name, "--router", c.router.addrs["rpc"], "--model", tinyModel,
		"--model-name", "m", "--lease", "1s", "--kv-memory", "16MiB")
}

// TestStartUpRefusals are exits with code 2 and a reason.
func TestStartUpRefusals(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--model", tinyModel, "--block-size", "7"}, "SIZ-004"},
		{[]string{"--model", tinyModel, "--kv-memory", "1KiB"}, "SIZ-002"},
		{[]string{"--model", tinyModel, "--kv-memory", "900TiB"}, "SIZ-001"},
		{[]string{"--model", tinyModel, "--tp", "99"}, "SIZ-003"},
		{[]string{"--model", tinyModel, "--tp", "0"}, "--tp"},
		{[]string{"--model", "harness_test.go"}, "WGT-001"},
		{[]string{"--model", "nowhere.gguf"}, "nowhere.gguf"},
		{[]string{"--model", tinyModel, "--device", "cuda"}, "--device"},
		{[]string{"--model", tinyModel, "--nonsense"}, "nonsense"},
		{[]string{"--model", tinyModel, "--id", "a,b"}, "--id"},
		{[]string{"--model", tinyModel, "--router", "nocolon"}, "--router"},
		{[]string{"--model", tinyModel, "--advertise", "foo"}, "--advertise"},
	} {
		code, said := runToEnd(t, "worker", tc.args...)
		if code != 2 || !strings.Contains(said, tc.want) {
			t.Errorf("%v: exit %d, %s", tc.args, code, said)
		}
	}
}

func TestRouterStartUpRefusals(t *testing.T) {
	for flag, value := range map[string]string{
		"--id": "a,b", "--queue-timeout": "0s", "--queue-requests": "0", "--cors-origins": "nowhere", "--http": "nocolon",
	} {
		code, said := runToEnd(t, "router", "--data", t.TempDir(), "--http", "127.0.0.1:0", "--rpc", "127.0.0.1:0",
			"--admin", "127.0.0.1:0", "--raft", "127.0.0.1:0", flag, value)
		if code != 2 || !strings.Contains(said, flag) {
			t.Errorf("%s %s: exit %d, %s", flag, value, code, said)
		}
	}
}

func runToEnd(t *testing.T, bin string, args ...string) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join("..", "bin", bin), args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}
