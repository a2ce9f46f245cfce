//go:build e2e && chaos

package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var (
	chaosSeeds  = flag.Int("seeds", 3, "chaos: runs, of seeds 0 and up")
	chaosFaults = flag.Int("faults", 8, "chaos: faults of a run")
)

// proxy is a TCP port in front of another. While it is cut, bytes and new connections wait, as where packets are lost.
type proxy struct {
	at, to string
	mu     sync.Mutex
	flows  sync.Cond
	cut    bool
}

func newProxy(t *testing.T, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &proxy{at: l.Addr().String(), to: to}
	p.flows.L = &p.mu
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(c)
		}
	}()
	return p
}

func (p *proxy) serve(in net.Conn) {
	defer in.Close()
	p.wait()
	out, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	defer out.Close()
	go func() { p.copy(out, in); out.Close() }()
	p.copy(in, out)
}

func (p *proxy) copy(to, from net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.wait()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *proxy) wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.cut {
		p.flows.Wait()
	}
}

func (p *proxy) set(cut bool) {
	p.mu.Lock()
	p.cut = cut
	p.mu.Unlock()
	p.flows.Broadcast()
}

// chaos is three routers and three workers, whose connections can be cut, and clients that never stop asking.
type chaos struct {
	*replicas
	rng       *rand.Rand
	http      []string // fixed addresses
	rpc, raft []string
	rpcProxy  []*proxy
	raftProxy []*proxy
	struck    []atomic.Int64 // by router: how often it was, odd while it is down
	want      [][]int32      // reference answers
	asked     atomic.Int64
	right     atomic.Int64
	refused   sync.Map // by error id: *atomic.Int64
	broken    atomic.Int64
}

const chaosReplicas, chaosWorkers, chaosPrompts = 3, 3, 24

func startChaos(t *testing.T, seed uint64) *chaos {
	c := &chaos{
		replicas: &replicas{cluster: &cluster{t: t, dir: t.TempDir(), http: &http.Client{Timeout: 3 * time.Minute}}},
		rng:      rand.New(rand.NewPCG(seed, 77)), struck: make([]atomic.Int64, chaosReplicas),
	}
	for i := range chaosReplicas {
		free := freePorts(t, 3)
		c.http, c.rpc, c.raft = append(c.http, free[0]), append(c.rpc, free[1]), append(c.raft, free[2])
		c.rpcProxy, c.raftProxy = append(c.rpcProxy, newProxy(t, free[1])), append(c.raftProxy, newProxy(t, free[2]))
		c.peers = append(c.peers, fmt.Sprintf("r%d=%s/%s", i+1, c.raftProxy[i].at, c.rpcProxy[i].at))
		c.all = append(c.all, nil)
		c.disk(i)
	}
	var started sync.WaitGroup
	for i := range chaosReplicas {
		started.Go(func() { c.startRouter(i) })
	}
	started.Wait()
	for i := range chaosWorkers {
		c.workers = append(c.workers, c.startWorker(i))
	}
	c.settle()
	c.router = c.all[0]
	for k := range chaosPrompts {
		a, err := c.complete(c.ask(k))
		if err != nil {
			t.Fatal(err)
		}
		c.want = append(c.want, a.Choices[0].TokenIDs)
	}
	return c
}

// disk gives a router a small file system of its own, where that is allowed.
func (c *chaos) disk(i int) {
	dir := c.data(i)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=160m"); err != nil {
		c.t.Fatalf("a file system for router %d (this test needs to mount one): %v", i, err)
	}
	c.t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
}

func (c *chaos) data(i int) string { return filepath.Join(c.dir, fmt.Sprint("disk", i)) }

func (c *chaos) routerArgs(i int, http, rpc, raft, data string) []string {
	return []string{"--id", fmt.Sprintf("r%d", i+1), "--peers", strings.Join(c.peers, ","), "--http", http, "--rpc", rpc,
		"--admin", "127.0.0.1:0", "--raft", raft, "--data", filepath.Join(data, "data"), "--queue-timeout", "20s", "--resume-timeout", "20s"}
}

func (c *chaos) startRouter(i int) {
	c.all[i] = spawn(c.t, fmt.Sprintf("r%d", i+1), "router", c.routerArgs(i, c.http[i], c.rpc[i], c.raft[i], c.data(i))...)
}

func (c *chaos) startWorker(i int) *process {
	var routers []string
	for _, p := range c.rpcProxy {
		routers = append(routers, p.at)
	}
	id := fmt.Sprintf("w%d", i+1)
	return spawn(c.t, id, "worker", "--id", id, "--router", strings.Join(routers, ","), "--model", tinyModel, "--model-name", "m",
		"--lease", "2s", "--kv-memory", "16MiB", "--threads", "1")
}

// settle waits until every router serves every worker.
func (c *chaos) settle() {
	for i := range c.all {
		at := c.at(i)
		await(c.t, fmt.Sprintf("router %d to serve all workers", i+1), 2*time.Minute, func() error {
			s, err := at.state()
			ready := 0
			for _, w := range s.Workers {
				if w.State == "ready" {
					ready++
				}
			}
			if err == nil && ready != chaosWorkers {
				err = fmt.Errorf("%d are ready", ready)
			}
			return err
		})
	}
}

func (c *chaos) ask(k int) object {
	return object{"model": "m", "prompt": ids(uint64(k), 20+17*(k%9)), "max_tokens": 8 + 11*(k%7), "temperature": 0, "ignore_eos": true,
		"return_token_ids": true}
}

// client asks one router after another until it is stopped. Each request gets one answer, which is right, or one typed
// error, or its router was struck meanwhile.
func (c *chaos) client(rng *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		i, k := rng.IntN(chaosReplicas), rng.IntN(chaosPrompts)
		before := c.struck[i].Load()
		at := &cluster{t: c.t, http: c.replicas.cluster.http, router: &process{addrs: map[string]string{"http": c.http[i]}}}
		a, err := at.post(context.Background(), "/v1/completions", c.ask(k))
		c.asked.Add(1)
		switch {
		case err != nil && (before%2 == 1 || c.struck[i].Load() != before):
			c.broken.Add(1)
			time.Sleep(20 * time.Millisecond) // not to spin on a dead port
		case err != nil:
			c.t.Errorf("through router %d, which was not struck: %v", i+1, err)
		case a.status == http.StatusOK:
			if len(a.Choices) != 1 || !slices.Equal(a.Choices[0].TokenIDs, c.want[k]) {
				c.t.Errorf("prompt %d through router %d: wrong tokens", k, i+1)
			}
			c.right.Add(1)
		default:
			id, _ := a.Error.Berth["id"].(string)
			if !slices.Contains([]string{"WRK-001", "WRK-002", "KV-002", "LDG-001", "QUE-001", "RTR-001", "MDL-001"}, id) {
				c.t.Errorf("prompt %d through router %d: %d %+v", k, i+1, a.status, a.Error)
			}
			n, _ := c.refused.LoadOrStore(id, &atomic.Int64{})
			n.(*atomic.Int64).Add(1)
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// strike does one fault to a router or worker, and undoes it.
func (c *chaos) strike() string {
	i, w, pause := c.rng.IntN(chaosReplicas), c.rng.IntN(chaosWorkers), time.Duration(500+c.rng.IntN(3500))*time.Millisecond
	down := func() func() { c.struck[i].Add(1); return func() { c.struck[i].Add(1) } }
	switch c.rng.IntN(10) {
	case 0, 1:
		defer down()()
		c.all[i].kill()
		time.Sleep(pause / 4)
		for range 2 { // restarted twice after each fault
			c.startRouter(i)
			if c.rng.IntN(2) == 0 {
				time.Sleep(pause / 4)
			}
			c.all[i].kill()
		}
		c.startRouter(i)
		return fmt.Sprintf("router %d killed three times", i+1)
	case 2:
		c.workers[w].kill()
		time.Sleep(pause / 4)
		c.workers[w] = c.startWorker(w)
		return fmt.Sprintf("worker %d killed", w+1)
	case 3:
		defer down()()
		c.all[i].cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(pause)
		c.all[i].cmd.Process.Signal(syscall.SIGCONT)
		return fmt.Sprintf("router %d paused for %v", i+1, pause)
	case 4:
		c.workers[w].cmd.Process.Signal(syscall.SIGSTOP)
		time.Sleep(pause)
		c.workers[w].cmd.Process.Signal(syscall.SIGCONT)
		return fmt.Sprintf("worker %d paused for %v", w+1, pause)
	case 5, 6, 7:
		what := c.rng.IntN(3) // gRPC, raft, both
		c.rpcProxy[i].set(what != 1)
		c.raftProxy[i].set(what != 0)
		time.Sleep(pause)
		c.rpcProxy[i].set(false)
		c.raftProxy[i].set(false)
		return fmt.Sprintf("%s to router %d cut for %v", []string{"gRPC", "raft", "all"}[what], i+1, pause)
	case 8:
		return c.fillDisk(i, down)
	}
	return c.wipe(i, down, pause)
}

// fillDisk takes all room of a router's disk: the router says so and ends, and starts again once there is room.
func (c *chaos) fillDisk(i int, down func() func()) string {
	defer down()()
	full := filepath.Join(c.data(i), "full")
	f, err := os.Create(full)
	if err != nil {
		c.t.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Write(buf)
	}
	f.Close()
	if !errors.Is(err, syscall.ENOSPC) {
		c.t.Errorf("fill the disk of router %d: %v", i+1, err)
	}
	select {
	case <-c.all[i].ended:
		if code := c.all[i].cmd.ProcessState.ExitCode(); code != 1 {
			c.t.Errorf("router %d ended with %d on a full disk", i+1, code)
		}
	case <-time.After(30 * time.Second): // its segments are allocated ahead: it need not write beyond them
		c.all[i].kill()
	}
	if err := os.Remove(full); err != nil {
		c.t.Error(err)
	}
	c.startRouter(i)
	return fmt.Sprintf("disk of router %d full", i+1)
}

// wipe empties a router's disk while it is down, or starts a twin of it beside it first, which must not be let in.
func (c *chaos) wipe(i int, down func() func(), pause time.Duration) string {
	if c.rng.IntN(2) == 0 {
		return c.twin(i)
	}
	defer down()()
	c.all[i].kill()
	if err := os.RemoveAll(filepath.Join(c.data(i), "data")); err != nil {
		c.t.Fatal(err)
	}
	time.Sleep(pause / 4)
	c.startRouter(i)
	return fmt.Sprintf("disk of router %d wiped", i+1)
}

// twin starts a second process of a living router's name with an empty disk: it must never serve.
func (c *chaos) twin(i int) string {
	free := freePorts(c.t, 3)
	dir := c.t.TempDir()
	p := launch(c.t, "router", append(c.routerArgs(i, free[0], free[1], free[2], dir), "--addr-file", filepath.Join(dir, "addrs"))...)
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
		resp, err := http.Get("http://" + free[0] + "/readyz")
		if err == nil {
			said, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				c.t.Errorf("a twin of router %d is ready: %s", i+1, said)
			}
		}
		p.kill()
	}
	return fmt.Sprintf("twin of router %d", i+1)
}

// TestChaos strikes a loaded cluster of real processes with faults, by seed: no wrong token, each request one answer or one
// typed error, nothing left in the ledger, equal digests.
func TestChaos(t *testing.T) {
	for seed := range uint64(*chaosSeeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c := startChaos(t, seed)
			stop := make(chan struct{})
			var clients sync.WaitGroup
			for n := range uint64(6) {
				clients.Go(func() { c.client(rand.New(rand.NewPCG(seed, n)), stop) })
			}
			for n := range *chaosFaults {
				what := c.strike()
				t.Logf("fault %d: %s", n, what)
				time.Sleep(time.Duration(c.rng.IntN(2000)) * time.Millisecond)
			}
			c.settle()
			close(stop)
			clients.Wait()
			c.router = c.all[0]
			c.awaitSame()
			for k := range c.want {
				if a, err := c.complete(c.ask(k)); err != nil || !slices.Equal(a.Choices[0].TokenIDs, c.want[k]) {
					t.Errorf("prompt %d at the end: %v", k, err)
				}
			}
			line := fmt.Sprintf("%d asked, %d right, %d broken with their router", c.asked.Load(), c.right.Load(), c.broken.Load())
			c.refused.Range(func(id, n any) bool {
				line += fmt.Sprintf(", %d %v", n.(*atomic.Int64).Load(), id)
				return true
			})
			t.Log(line)
		})
	}
}
