package consensus

import (
	"errors"
	"sync"
	"testing"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus/ledger"
)

// open starts a node in dir and waits until it can commit.
func open(t testing.TB, c Config) *Node {
	t.Helper()
	c.ID = "n1"
	n, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	eventually(t, n, func() bool { return n.Ready() == nil })
	return n
}

// eventually waits for a condition of what the node published.
func eventually(t testing.TB, n *Node, condition func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		changed := n.Changed()
		if condition() {
			return
		}
		select {
		case <-changed:
		case <-time.After(5 * time.Millisecond): // raft's own state has no channel
		case <-deadline:
			t.Fatalf("not within 10 s; ready: %v", n.Ready())
		}
	}
}

func register(t testing.TB, n *Node, worker string, pages, slots uint64) (incarnation uint64) {
	t.Helper()
	info := &ledgerv1.WorkerInfo{Address: "w:1", Pages: pages, Slots: slots, Geometry: &ledgerv1.Geometry{
		BlockSize: 16, Windows: []uint32{0}, StepsInFlight: 1, MaxBatchTokens: 16, PrefillsInStep: 1,
	}}
	r, err := n.Propose(t.Context(), &ledgerv1.Proposal{Command: &ledgerv1.Command{
		Kind: &ledgerv1.Command_Register{Register: &ledgerv1.Register{
			Worker: worker, Nonce: []byte(worker), LeaseMs: 60_000, Info: info,
		}},
	}})
	if err != nil || r.GetOpened() == nil {
		t.Fatalf("register: %v, %v", r, err)
	}
	return r.GetOpened().Session
}

func reserve(worker string, incarnation, pages uint64) *ledgerv1.Command {
	return &ledgerv1.Command{Kind: &ledgerv1.Command_Reserve{Reserve: &ledgerv1.Reserve{
		Worker: worker, Incarnation: incarnation, ShareGroup: "red", Pages: pages, PagesMax: pages, Slots: 1,
	}}}
}

func drop(id uint64) *ledgerv1.Command {
	return &ledgerv1.Command{Kind: &ledgerv1.Command_Drop{Drop: &ledgerv1.Drop{Reservation: id}}}
}

func do(t testing.TB, s *Session, c *ledgerv1.Command) *ledgerv1.Result {
	t.Helper()
	r, err := s.Do(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestOneNode(t *testing.T) {
	n := open(t, Config{Dir: t.TempDir()})
	if id, self := n.Leader(); id != "n1" || !self || n.Term() == 0 {
		t.Errorf("leader %q, self %v, term %d", id, self, n.Term())
	}
	s, err := n.OpenSession("r1", 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	w := register(t, n, "w1", 8, 4)
	r := do(t, s, reserve("w1", w, 3))
	id := r.GetReserved().GetReservation()
	if v := n.View(); v.Revision < r.Revision || v.Worker("w1").Granted != 3 || n.Revision() != v.Revision {
		t.Errorf("N2: the view lags behind the answer: %+v", v)
	}
	if err := ledger.Err(do(t, s, reserve("w1", w, 9))); err == nil {
		t.Error("nine pages of eight")
	}
	do(t, s, drop(id))
	if got := n.Notice(w); len(got.Orphans) != 1 || got.Orphans[0] != id || got.Fenced {
		t.Errorf("notice %+v", got)
	}
	if _, err := Open(Config{ID: "n1", Dir: n.config.Dir}); !errors.Is(err, ErrInUse) {
		t.Errorf("second process: %v", err)
	}
	s.Close()
	if _, err := s.Do(t.Context(), drop(id)); !errors.Is(err, ErrClosed) {
		t.Errorf("closed session: %v", err)
	}
}

// N4: what was committed is there after the process is gone, in the same state.
func TestReopen(t *testing.T) {
	dir := t.TempDir()
	n := open(t, Config{Dir: dir, TickInterval: 10 * time.Millisecond})
	s, err := n.OpenSession("r1", 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	w := register(t, n, "w1", 1000, 1000)
	for range 50 {
		do(t, s, reserve("w1", w, 1))
	}
	ticks := len(n.Digests())
	eventually(t, n, func() bool { return len(n.Digests()) > ticks+2 })
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	before := n.Digests()
	again := open(t, Config{Dir: dir, TickInterval: time.Hour})
	if v := again.View(); v.Worker("w1").Granted != 50 || string(v.ClusterID) != string(n.View().ClusterID) {
		t.Errorf("N4: %+v", v.Worker("w1"))
	}
	eventually(t, again, func() bool { return len(again.Digests()) > len(before) })
	for i, d := range again.Digests()[:len(before)] {
		if d != before[i] {
			t.Fatalf("N4: digest %d at revision %d differs from that at %d", i, d.Revision, before[i].Revision)
		}
	}
}

func TestSnapshotAndTruncate(t *testing.T) {
	dir := t.TempDir()
	c := Config{Dir: dir, SnapshotThreshold: 20, TickInterval: time.Hour}
	n := open(t, c)
	s, err := n.OpenSession("r1", 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	w := register(t, n, "w1", 1000, 1000)
	for range 100 {
		do(t, s, reserve("w1", w, 1))
	}
	if err := n.raft().Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		do(t, s, reserve("w1", w, 1))
	}
	if first, err := n.seat.log.FirstIndex(); err != nil || first < 50 {
		t.Errorf("the log still begins at %d, %v", first, err)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, c)
	if got := again.View().Worker("w1"); got == nil || got.Granted != 103 {
		t.Errorf("N4: %+v", got)
	}
}

// N1 and group commit: proposals that come together share entries.
func TestBatches(t *testing.T) {
	n := open(t, Config{Dir: t.TempDir(), TickInterval: time.Hour})
	s, err := n.OpenSession("r1", 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	w := register(t, n, "w1", 1<<20, 1<<20)
	entries := n.raft().LastIndex()
	var all sync.WaitGroup
	const proposers, each = 64, 50
	for range proposers {
		all.Go(func() {
			last := uint64(0)
			for range each {
				r, err := s.Do(t.Context(), reserve("w1", w, 1))
				if err != nil || r.GetReserved() == nil || r.Revision <= last {
					t.Errorf("N1: %v after revision %d, %v", r, last, err)
					return
				}
				last = r.Revision
			}
		})
	}
	all.Wait()
	if used := n.raft().LastIndex() - entries; used > proposers*each/4 {
		t.Errorf("%d proposals took %d entries", proposers*each, used)
	}
	if got := n.View().Worker("w1").Granted; got != proposers*each {
		t.Errorf("N3: granted %d of %d", got, proposers*each)
	}
}

func TestConfigValidate(t *testing.T) {
	if err := (Config{ID: "a", Dir: "b"}).Validate(); err != nil {
		t.Error(err)
	}
	for i, c := range []Config{
		{Dir: "b"}, {ID: "a"}, {ID: "a", Dir: "b", TickInterval: 1}, {ID: "a", Dir: "b", SnapshotInterval: 1},
	} {
		if c.Validate() == nil {
			t.Errorf("config %d is accepted", i)
		}
	}
}
