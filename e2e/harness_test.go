//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const tinyModel = "../testdata/golden/tiny/gemma3/model-q8_0.gguf"

// process is a running program of bin/.
type process struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	addrs map[string]string
	log   string
	ended chan struct{}
}

// spawn starts a program and waits until it has written its addresses.
func spawn(t *testing.T, name, bin string, args ...string) *process {
	t.Helper()
	dir := t.TempDir()
	addrs := filepath.Join(dir, "addrs")
	p := launch(t, bin, append(args, "--addr-file", addrs)...)
	p.name = name
	await(t, name+"'s addresses", time.Minute, func() error {
		select {
		case <-p.ended:
			raw, _ := os.ReadFile(p.log)
			t.Fatalf("%s ended: %s", name, raw)
		default:
		}
		raw, err := os.ReadFile(addrs)
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, &p.addrs)
	})
	return p
}

// launch starts a program, which ends with the test.
func launch(t *testing.T, bin string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: bin, log: filepath.Join(t.TempDir(), "log"), ended: make(chan struct{})}
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	p.cmd = exec.Command(filepath.Join("..", "bin", bin), args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%v: run `make build` first", err)
	}
	go func() { p.cmd.Wait(); out.Close(); close(p.ended) }()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			raw, _ := os.ReadFile(p.log)
			t.Logf("log of %s:\n%s", p.name, raw[max(0, len(raw)-4000):])
		}
	})
	return p
}

// kill ends the process at once, as kill -9 does.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// term asks the process to drain and end, and returns its exit code.
func (p *process) term() int {
	p.cmd.Process.Signal(syscall.SIGTERM)
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

// await polls until check has no complaint.
func await(t *testing.T, what string, timeout time.Duration, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s: %v", timeout, what, err)
		}
	}
}

// cluster is one router and its workers.
type cluster struct {
	t       *testing.T
	dir     string
	router  *process
	workers []*process
	http    *http.Client
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), http: &http.Client{Timeout: 2 * time.Minute}}
	c.startRouter("127.0.0.1:0", "127.0.0.1:0")
	return c
}

// startRouter starts the router on its data; a restarted one binds the addresses that it had.
func (c *cluster) startRouter(httpAddr, rpcAddr string) {
	c.t.Helper()
	c.router = spawn(c.t, "router", "router", "--id", "r1", "--http", httpAddr, "--rpc", rpcAddr, "--admin", "127.0.0.1:0",
		"--raft", "127.0.0.1:0", "--data", filepath.Join(c.dir, "router"))
}

func (c *cluster) restartRouter() {
	addrs := c.router.addrs
	c.router.kill()
	c.startRouter(addrs["http"], addrs["rpc"])
}

func (c *cluster) addWorker(name, model string, args ...string) *process {
	c.t.Helper()
	p := spawn(c.t, name, "worker", append([]string{"--id", name, "--router", c.router.addrs["rpc"], "--model", model,
		"--model-name", "m", "--lease", "1s"}, args...)...)
	c.workers = append(c.workers, p)
	c.awaitReady(len(c.workers))
	return p
}

func (c *cluster) awaitReady(n int) {
	c.t.Helper()
	await(c.t, fmt.Sprintf("%d ready workers", n), time.Minute, func() error {
		s, err := c.state()
		if err != nil {
			return err
		}
		ready := 0
		for _, w := range s.Workers {
			if w.State == "ready" {
				ready++
			}
		}
		if ready != n {
			return fmt.Errorf("%d are ready", ready)
		}
		return nil
	})
}

type state struct {
	Revision uint64 `json:"revision"`
	Workers  []struct {
		ID          string         `json:"id"`
		Incarnation uint64         `json:"incarnation"`
		State       string         `json:"state"`
		Pages       map[string]int `json:"pages"`
		Running     int            `json:"running"`
		Waiting     int            `json:"waiting"`
	} `json:"workers"`
	Queue   map[string]int `json:"queue"`
	Digests []struct {
		Revision uint64 `json:"revision"`
		Digest   string `json:"digest"`
	} `json:"digests"`
}

func (c *cluster) state() (s state, err error) {
	resp, err := c.http.Get("http://" + c.router.addrs["admin"] + "/admin/v1/cluster")
	if err != nil {
		return s, err
	}
	defer resp.Body.Close()
	return s, json.NewDecoder(resp.Body).Decode(&s)
}

// drained is the drain check: nothing granted in the ledger, nothing charged on any worker, nothing waits.
func (c *cluster) drained() error {
	s, err := c.state()
	if err != nil {
		return err
	}
	for _, w := range s.Workers {
		if w.State != "ready" {
			continue
		}
		p := w.Pages
		if p["granted"] != 0 || p["charged"] != 0 || p["overhead"] != 0 || p["idle"]+p["free"] != p["total"] || w.Running+w.Waiting != 0 {
			return fmt.Errorf("%s: %v, %d running, %d waiting", w.ID, p, w.Running, w.Waiting)
		}
	}
	if s.Queue["requests"] != 0 {
		return fmt.Errorf("queue %v", s.Queue)
	}
	return nil
}

func (c *cluster) awaitDrained() {
	c.t.Helper()
	await(c.t, "drain", 10*time.Second, c.drained)
}

// object is a JSON object.
type object map[string]any

// answer is a completion or chat response, or an error.
type answer struct {
	status int
	ID     string `json:"id"`
	Error  struct {
		Message string `json:"message"`
		Type    string `json:"type"`
		Param   string `json:"param"`
		Code    string `json:"code"`
		Berth   object `json:"berth"`
	} `json:"error"`
	Choices []struct {
		Text     string  `json:"text"`
		TokenIDs []int32 `json:"token_ids"`
		Finish   string  `json:"finish_reason"`
		Message  struct {
			Content string `json:"content"`
		} `json:"message"`
	} `json:"choices"`
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

func (c *cluster) post(ctx context.Context, path string, body any) (answer, error) {
	raw, ok := body.([]byte)
	if !ok {
		raw, _ = json.Marshal(body)
	}
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+c.router.addrs["http"]+path, bytes.NewReader(raw))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	if resp.Header.Get("x-request-id") == "" {
		return answer{}, errors.New("the response has no x-request-id")
	}
	a := answer{status: resp.StatusCode}
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(all, &a); err != nil {
		return a, fmt.Errorf("%s: %w", all, err)
	}
	return a, nil
}

// complete asks for a completion that must succeed.
func (c *cluster) complete(body object) (answer, error) {
	if _, ok := body["model"]; !ok {
		body["model"] = "m"
	}
	a, err := c.post(context.Background(), "/v1/completions", body)
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("status %d: %s", a.status, a.Error.Message)
	}
	return a, err
}

// firstChunks reads n data events of a stream and then leaves, as an impatient client does.
func (c *cluster) firstChunks(body object, n int) error {
	body["model"], body["stream"] = "m", true
	raw, _ := json.Marshal(body)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "POST", "http://"+c.router.addrs["http"]+"/v1/completions", bytes.NewReader(raw))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	buf := make([]byte, 4096)
	for seen := 0; seen < n; {
		k, err := resp.Body.Read(buf)
		seen += strings.Count(string(buf[:k]), "data: ")
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
