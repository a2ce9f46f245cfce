package consensus

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// written is a directory with a log of some hundred entries and, if threshold is small, snapshots; closed.
func written(t *testing.T, threshold uint64) (dir string, revision uint64) {
	t.Helper()
	dir = t.TempDir()
	n := open(t, Config{Dir: dir, TickInterval: 5 * time.Millisecond, SnapshotThreshold: threshold})
	s, err := n.OpenSession("r1", 30*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	w := register(t, n, "w1", 1<<20, 1<<20)
	for range 100 {
		do(t, s, reserve("w1", w, 1))
	}
	if threshold < 100 {
		if err := n.raft().Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
	}
	ticks := n.Revision()
	eventually(t, n, func() bool { return n.Revision() > ticks+3 })
	s.Close()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, n.Revision()
}

// copied is a copy of a directory.
func copied(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// flip changes one bit of a file.
func flip(t *testing.T, path string, at int64, bit int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var one [1]byte
	if _, err := f.ReadAt(one[:], at); err != nil {
		t.Fatal(err)
	}
	one[0] ^= 1 << bit
	if _, err := f.WriteAt(one[:], at); err != nil {
		t.Fatal(err)
	}
}

// segment is the log's first file and the bytes of it that are used.
func segment(t *testing.T, dir string) (path string, used int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no log in %s: %v", dir, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for used = int64(len(data)); data[used-1] == 0; used-- {
	}
	return files[0], used
}

// refused opens a directory that must not open, or, if it does, must have everything.
func refused(t *testing.T, dir, what string, revision uint64) (why error) {
	t.Helper()
	n, err := Open(Config{ID: "n1", Dir: dir, TickInterval: time.Hour})
	if err != nil {
		if line := err.Error(); !strings.Contains(line, dir) || strings.Contains(line, "goroutine") {
			t.Errorf("%s: %v", what, err)
		}
		return err
	}
	defer n.Close()
	eventually(t, n, func() bool { return n.Ready() == nil })
	if n.Revision() < revision {
		t.Errorf("%s: in silence, revision %d of %d", what, n.Revision(), revision)
	}
	return nil
}

// N6: no bit of the log can change in silence, or end the process with a stack.
func TestFlippedBits(t *testing.T) {
	dir, revision := written(t, 1<<20)
	_, used := segment(t, dir)
	rng := rand.New(rand.NewPCG(1, 1))
	tries, found, named := 16, 0, 0
	if testing.Short() {
		tries = 8
	}
	for range tries {
		bad := copied(t, dir)
		path, _ := segment(t, bad)
		at, bit := rng.Int64N(used), rng.IntN(8)
		flip(t, path, at, bit)
		if err := refused(t, bad, fmt.Sprintf("bit %d of byte %d", bit, at), revision); err != nil {
			found++
			if errors.Is(err, errDamaged) || strings.Contains(err.Error(), "entry ") {
				named++
			}
		}
	}
	t.Logf("%d of %d found, %d name the entry", found, tries, named)
	if named < tries/4 {
		t.Errorf("%d of %d found, %d name the entry", found, tries, named)
	}
	for what, spoil := range map[string]func(path string) error{
		"a log cut in half": func(path string) error { return os.Truncate(path, used/2) },
		"an empty log":      func(path string) error { return os.Truncate(path, 0) },
		"no log":            os.Remove,
	} {
		bad := copied(t, dir)
		path, _ := segment(t, bad)
		if err := spoil(path); err != nil {
			t.Fatal(err)
		}
		if refused(t, bad, what, revision) == nil {
			t.Errorf("N6: %s is taken", what)
		}
	}
}

// N6: a bit that changes in the tail of the log, where it looks like a batch that was being written, is found too: what was
// committed is marked at once, and at Close.
func TestFlippedBitsInTheTail(t *testing.T) {
	dir := t.TempDir()
	n := open(t, Config{Dir: dir, TickInterval: time.Hour}) // no tick comes after the reserves
	s, err := n.OpenSession("r1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	w := register(t, n, "w1", 1<<20, 1<<20)
	for range 100 {
		do(t, s, reserve("w1", w, 1))
	}
	s.Close()
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	revision := n.Revision()
	_, used := segment(t, dir)
	rng := rand.New(rand.NewPCG(2, 2))
	tries := 24
	if testing.Short() {
		tries = 8
	}
	for range tries {
		bad := copied(t, dir)
		path, _ := segment(t, bad)
		at, bit := used-1-rng.Int64N(1200), rng.IntN(8)
		flip(t, path, at, bit)
		_ = refused(t, bad, fmt.Sprintf("bit %d of byte %d of %d", bit, at, used), revision)
	}
}

// N6: a snapshot that changed is not restored; an older one and the log may do, or the node says why not.
func TestFlippedSnapshot(t *testing.T) {
	dir, revision := written(t, 20)
	files, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "state.bin"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no snapshots: %v", err)
	}
	for _, path := range files {
		flip(t, path, 40, 3)
	}
	why := refused(t, dir, "flipped snapshots", revision)
	if why == nil || !strings.Contains(why.Error(), "CRC") {
		t.Errorf("N6: %v", why)
	}
}

// N6: an entry that cannot be applied, though it is as it was written, stops the node and nothing else.
func TestUnknownEntryFails(t *testing.T) {
	n := open(t, Config{Dir: t.TempDir(), TickInterval: time.Hour})
	s, err := n.OpenSession("r1", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	do(t, s, drop(1)) // the session is open: nothing else is written
	for changed := n.Changed(); len(n.Digests()) == 0; changed = n.Changed() {
		select {
		case <-changed: // the first tick; the next one is hours away
		case <-time.After(10 * time.Second):
			t.Fatal("no first tick")
		}
	}
	digest, revision := n.machine.state.Digest(), n.Revision()
	if err := n.raft().Apply([]byte{0x0a, 0xff}, 0).Error(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-n.Failed():
		if !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), n.config.Dir) ||
			!strings.Contains(err.Error(), fmt.Sprintf("entry %d ", n.raft().LastIndex())) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("N6: the node goes on")
	}
	if _, err := s.Do(t.Context(), drop(1)); !errors.Is(err, ErrClosed) {
		t.Errorf("a session of a failed node: %v", err)
	}
	noop := &ledgerv1.Command{Kind: &ledgerv1.Command_Noop{Noop: &ledgerv1.Noop{}}}
	if _, err := n.Propose(t.Context(), &ledgerv1.Proposal{Command: noop}); !errors.Is(err, ErrFailed) {
		t.Errorf("a proposal to a failed node: %v", err)
	}
	if err := n.Ready(); !errors.Is(err, ErrFailed) {
		t.Errorf("a failed node is ready: %v", err)
	}
	if n.Revision() != revision || n.machine.state.Digest() != digest {
		t.Error("N6: something was applied after the entry")
	}
}

// broken is a log whose entries cannot be read.
type broken struct{ raft.LogStore }

func (broken) GetLog(uint64, *raft.Log) error { return errDamaged }

// N6: raft panics where it cannot read its log, so a running node's read does not return.
func TestReadFailsWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan error, 1)
		g := &guard{LogStore: broken{}, writes: &writes{}, dir: "there", fail: func(err error) { failed <- err }, held: make(chan struct{})}
		if err := g.GetLog(7, &raft.Log{}); !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), "entry 7 of the log in there") {
			t.Error(err)
		}
		g.running.Store(true)
		returned := false
		go func() { _ = g.GetLog(7, &raft.Log{}); returned = true }()
		synctest.Wait()
		if err := <-failed; returned || !g.hung.Load() || !errors.Is(err, errDamaged) {
			t.Errorf("returned %v, %v", returned, err)
		}
		close(g.held)
	})
}

// A directory that belongs to another id is said so at once.
func TestForeignDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := open(t, Config{Dir: dir}).Close(); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Config{ID: "n2", Dir: dir})
	want := dir + ": " + ErrForeign.Error() + ": it is the folder of replica n1, not of n2"
	if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v", err)
	}
	open(t, Config{Dir: dir}) // and it is free again
}
