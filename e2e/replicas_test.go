//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// replicas are the routers of one cluster.
type replicas struct {
	*cluster
	extra []string // arguments of every router
	peers []string
	all   []*process // by index; nil: not started
}

// startReplicas starts routers that found a cluster, and waits until each of them can commit.
func startReplicas(t *testing.T, n int, extra ...string) *replicas {
	t.Helper()
	r := &replicas{cluster: &cluster{t: t, dir: t.TempDir(), http: &http.Client{Timeout: 2 * time.Minute}}, extra: extra}
	for range n {
		r.name()
	}
	var started sync.WaitGroup
	for i := range n {
		started.Go(func() { r.start(i) })
	}
	started.Wait()
	r.router = r.all[0]
	r.awaitLeader()
	return r
}

// name gives the next replica its addresses, and a place in the list of peers.
func (r *replicas) name() int {
	var free [2]string
	for i := range free {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			r.t.Fatal(err)
		}
		defer l.Close()
		free[i] = l.Addr().String()
	}
	r.peers = append(r.peers, fmt.Sprintf("r%d=%s/%s", len(r.peers)+1, free[0], free[1]))
	r.all = append(r.all, nil)
	return len(r.all) - 1
}

func (r *replicas) start(i int) {
	r.startAt(i, filepath.Join(r.dir, fmt.Sprint("router", i)))
}

func (r *replicas) startAt(i int, data string) {
	id, addresses, _ := strings.Cut(r.peers[i], "=")
	raft, rpc, _ := strings.Cut(addresses, "/")
	args := append([]string{"--id", id, "--peers", strings.Join(r.peers, ","), "--http", "127.0.0.1:0", "--rpc", rpc,
		"--admin", "127.0.0.1:0", "--raft", raft, "--data", data}, r.extra...)
	r.all[i] = spawn(r.t, id, "router", args...)
}

// at is the cluster as its users see it through one replica.
func (r *replicas) at(i int) *cluster {
	c := *r.cluster
	c.router = r.all[i]
	return &c
}

func (r *replicas) addWorkers(n int) {
	var addresses []string
	for _, p := range r.peers {
		addresses = append(addresses, p[strings.Index(p, "/")+1:])
	}
	for i := range n {
		id := fmt.Sprintf("w%d", i+1)
		r.workers = append(r.workers, spawn(r.t, id, "worker", "--id", id, "--router", strings.Join(addresses, ","), "--model", tinyModel,
			"--model-name", "m", "--lease", "2s", "--kv-memory", "16MiB"))
	}
	for i, p := range r.all {
		if p != nil {
			r.at(i).awaitReady(n)
		}
	}
}

type members struct {
	Leader   string
	Replicas []struct {
		ID, State string
	}
}

func (c *cluster) members() (m members, err error) {
	resp, err := c.http.Get("http://" + c.router.addrs["admin"] + "/admin/v1/cluster")
	if err != nil {
		return m, err
	}
	defer resp.Body.Close()
	return m, json.NewDecoder(resp.Body).Decode(&m)
}

// awaitLeader waits until all replicas that run name the same leader, and gives its index.
func (r *replicas) awaitLeader() int {
	leader := -1
	await(r.t, "a leader", 20*time.Second, func() error {
		names := map[string]bool{}
		for i, p := range r.all {
			if p == nil {
				continue
			}
			m, err := r.at(i).members()
			if err != nil {
				return err
			}
			names[m.Leader] = true
			fmt.Sscanf(m.Leader, "r%d", &leader)
		}
		if len(names) != 1 || names[""] {
			return fmt.Errorf("leaders %v", names)
		}
		return nil
	})
	return leader - 1
}

func (r *replicas) kill(i int) {
	r.all[i].kill()
	r.all[i] = nil
}

// load asks one replica for short answers, a few at once, until it is stopped.
type load struct {
	stop    chan struct{}
	clients sync.WaitGroup
	served  atomic.Int64
	slowest atomic.Int64
}

func (c *cluster) load(clients int) *load {
	l := &load{stop: make(chan struct{})}
	for i := range clients {
		l.clients.Go(func() {
			for k := uint64(0); ; k++ {
				select {
				case <-l.stop:
					return
				default:
				}
				began := time.Now()
				if _, err := c.complete(greedy(ids(k*64+uint64(i), 24), 8)); err != nil {
					c.t.Errorf("through %s: %v", c.router.name, err)
					return
				}
				l.served.Add(1)
				if took := int64(time.Since(began)); took > l.slowest.Load() {
					l.slowest.Store(took)
				}
			}
		})
	}
	return l
}

// after waits until the load has served some more.
func (l *load) after(t *testing.T, n int64) {
	t.Helper()
	want := l.served.Load() + n
	await(t, "the load to go on", 30*time.Second, func() error {
		if got := l.served.Load(); got < want {
			return fmt.Errorf("%d of %d served", got, want)
		}
		return nil
	})
}

func (l *load) end() time.Duration {
	close(l.stop)
	l.clients.Wait()
	return time.Duration(l.slowest.Load())
}

// awaitSame waits until the ledger is empty and its replicas have the same state at the same revisions.
func (r *replicas) awaitSame() {
	r.t.Helper()
	r.awaitDrained()
	await(r.t, "equal digests", 20*time.Second, func() error {
		known, compared := map[uint64]string{}, 0
		for i, p := range r.all {
			if p == nil {
				continue
			}
			s, err := r.at(i).state()
			if err != nil {
				return err
			}
			for _, d := range s.Digests {
				if other, ok := known[d.Revision]; ok && other != d.Digest {
					r.t.Fatalf("I8: replicas differ at revision %d", d.Revision)
				} else if ok {
					compared++
				}
				known[d.Revision] = d.Digest
			}
		}
		if compared < 2 {
			return fmt.Errorf("%d digests compared", compared)
		}
		return nil
	})
}

// TestLeaderIsKilled ends the leader of three by kill -9 under load on all of them: the others admit within two seconds, no
// request of theirs fails, and nothing that the dead one held is lost or kept (P8). It comes back.
func TestLeaderIsKilled(t *testing.T) {
	r := startReplicas(t, 3)
	r.addWorkers(2)
	leader := r.awaitLeader()
	var dying sync.WaitGroup
	for i := range 8 {
		c := r.at(leader)
		dying.Go(func() { c.post(t.Context(), "/v1/completions", greedyModel(ids(uint64(i), 40), 900)) }) // the router dies under it
	}
	var loads []*load
	for i := range r.all {
		if i != leader {
			loads = append(loads, r.at(i).load(3))
			r.router = r.all[i]
		}
	}
	for _, l := range loads {
		l.after(t, 30)
	}
	r.kill(leader)
	killed := time.Now()
	if _, err := r.complete(greedy(ids(7, 30), 2)); err != nil {
		t.Error(err)
	}
	if took := time.Since(killed); took > 2*time.Second {
		t.Errorf("the first admission after the leader's death took %v", took)
	} else {
		t.Logf("the first admission after the leader's death took %v", took)
	}
	dying.Wait()
	m, err := r.members()
	if err != nil || m.Replicas[leader].State != "away" {
		t.Errorf("of the dead leader the others say %+v, %v", m, err)
	}
	for _, l := range loads {
		l.after(t, 30)
		t.Logf("slowest answer %v", l.end())
	}
	r.awaitSame()
	r.start(leader)
	r.awaitLeader()
	r.at(leader).awaitReady(2)
	if _, err := r.at(leader).complete(greedy(ids(8, 30), 2)); err != nil {
		t.Error(err)
	}
	r.awaitSame()
}

// TestFollowerIsKilled ends a follower by kill -9: nobody at the others notices. Started with an empty disk it gets the
// ledger back before it votes.
func TestFollowerIsKilled(t *testing.T) {
	r := startReplicas(t, 3)
	r.addWorkers(1)
	leader := r.awaitLeader()
	gone, stays := (leader+1)%3, (leader+2)%3
	loads := []*load{r.at(leader).load(3), r.at(stays).load(3)}
	for _, l := range loads {
		l.after(t, 30)
	}
	r.kill(gone)
	r.router = r.all[leader]
	for _, l := range loads {
		l.after(t, 100)
		if slowest := l.end(); slowest > 2*time.Second {
			t.Errorf("an answer took %v", slowest)
		}
	}
	r.startAt(gone, filepath.Join(r.dir, "another disk"))
	r.at(gone).awaitReady(1)
	await(t, "three votes", 20*time.Second, func() error { return r.votes(3) })
	if _, err := r.at(gone).complete(greedy(ids(8, 30), 2)); err != nil {
		t.Error(err)
	}
	r.awaitSame()
}

// TestRouterHangs stops a router, the one that leads or one that follows: nobody at the others fails, no incarnation ends,
// and it goes on where it was.
func TestRouterHangs(t *testing.T) {
	for _, leads := range []bool{true, false} {
		t.Run(fmt.Sprintf("leads=%v", leads), func(t *testing.T) { routerHangs(t, leads) })
	}
}

func routerHangs(t *testing.T, leads bool) {
	r := startReplicas(t, 3)
	r.addWorkers(2)
	hung := r.awaitLeader()
	if !leads {
		hung = (hung + 1) % 3
	}
	one, other := (hung+1)%3, (hung+2)%3
	r.router = r.all[one]
	before, err := r.state()
	if err != nil {
		t.Fatal(err)
	}
	loads := []*load{r.at(one).load(3), r.at(other).load(3)}
	for _, l := range loads {
		l.after(t, 30)
	}
	r.all[hung].cmd.Process.Signal(syscall.SIGSTOP)
	stopped := time.Now()
	await(t, "two leases to pass", 20*time.Second, func() error {
		if time.Since(stopped) < 5*time.Second {
			return errors.New("not yet")
		}
		return nil
	})
	for _, l := range loads {
		l.after(t, 30)
		t.Logf("slowest answer %v", l.end())
	}
	r.all[hung].cmd.Process.Signal(syscall.SIGCONT)
	r.at(hung).awaitReady(2)
	after, err := r.at(hung).state()
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range after.Workers {
		if w.Incarnation != before.Workers[i].Incarnation {
			t.Errorf("%s was incarnation %d, and is %d", w.ID, before.Workers[i].Incarnation, w.Incarnation)
		}
	}
	await(t, "an answer of the one that hung", 20*time.Second, func() error {
		_, err := r.at(hung).complete(greedy(ids(8, 30), 2))
		return err
	})
	r.awaitSame()
}

func (r *replicas) votes(want int) error {
	m, err := r.members()
	if err != nil {
		return err
	}
	for _, one := range m.Replicas {
		if one.State != "leads" && one.State != "follows" {
			return fmt.Errorf("%s is %s", one.ID, one.State)
		}
	}
	if len(m.Replicas) != want {
		return fmt.Errorf("%d replicas", len(m.Replicas))
	}
	return nil
}

// TestMembersChange has a fourth router join, and the first leader leave, under load.
func TestMembersChange(t *testing.T) {
	r := startReplicas(t, 3)
	r.addWorkers(1)
	leader := r.awaitLeader()
	stays := (leader + 1) % 3
	r.router = r.all[stays]
	l := r.at(stays).load(3)
	l.after(t, 30)
	fourth := r.name()
	berth := func(args ...string) {
		t.Helper()
		args = append([]string{"members", "--admin", "http://" + r.router.addrs["admin"]}, args...)
		if out, err := exec.Command("../bin/berth", args...).CombinedOutput(); err != nil {
			t.Fatalf("berth %v: %v: %s", args, err, out)
		}
	}
	berth("add", r.peers[fourth])
	r.start(fourth)
	await(t, "four votes", 20*time.Second, func() error { return r.votes(4) })
	l.after(t, 30)
	berth("remove", fmt.Sprintf("r%d", leader+1))
	select {
	case <-r.all[leader].ended:
	case <-time.After(20 * time.Second):
		t.Error("the removed router lives on")
	}
	if code := r.all[leader].cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("the removed router ended with %d", code)
	}
	r.all[leader] = nil
	r.awaitLeader()
	await(t, "three votes", 20*time.Second, func() error { return r.votes(3) })
	l.after(t, 30)
	t.Logf("slowest answer %v", l.end())
	if _, err := r.at(fourth).complete(greedy(ids(8, 30), 2)); err != nil {
		t.Error(err)
	}
	r.awaitSame()
}
