package consensus

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/types"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// sick are files of which one operation fails once it is told to.
type sick struct {
	operation string
	cause     error
	now       atomic.Bool
}

func (s *sick) fails(operation string) error {
	if s.now.Load() && operation == s.operation {
		return s.cause
	}
	return nil
}

func (s *sick) files(segmentSize int) files {
	f := realFiles()
	return files{sickVFS{f.vfs, s}, sickMeta{f.meta, s}, segmentSize}
}

type sickVFS struct {
	types.VFS
	*sick
}

func (v sickVFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	if err := v.fails("create"); err != nil {
		return nil, &os.PathError{Op: "open", Path: filepath.Join(dir, name), Err: err}
	}
	f, err := v.VFS.Create(dir, name, size)
	return sickFile{f, v.sick}, err
}

func (v sickVFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := v.VFS.OpenWriter(dir, name)
	return sickFile{f, v.sick}, err
}

type sickFile struct {
	types.WritableFile
	*sick
}

func (f sickFile) WriteAt(data []byte, at int64) (int, error) {
	if err := f.fails("write"); err != nil {
		return 0, err
	}
	return f.WritableFile.WriteAt(data, at)
}

func (f sickFile) Sync() error {
	if err := f.fails("sync"); err != nil {
		return err
	}
	return f.WritableFile.Sync()
}

type sickMeta struct {
	types.MetaStore
	*sick
}

func (m sickMeta) CommitState(s types.PersistentState) error {
	if err := m.fails("commit"); err != nil {
		return err
	}
	return m.MetaStore.CommitState(s)
}

func (m sickMeta) SetStable(key, value []byte) error {
	if err := m.fails("stable"); err != nil {
		return err
	}
	return m.MetaStore.SetStable(key, value)
}

// ends waits for a node to say what is wrong with its disk.
func ends(t *testing.T, n *Node, words ...string) {
	t.Helper()
	select {
	case err := <-n.Failed():
		for _, word := range append(words, n.config.Dir) {
			if !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "\n") {
				t.Errorf("it says nothing of %q: %v", word, err)
			}
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("the node goes on; ready: %v", n.Ready())
	}
	if err := n.Ready(); !errors.Is(err, ErrFailed) {
		t.Errorf("it is ready: %v", err)
	}
}

// nothing is a proposal that changes nothing.
func nothing() *ledgerv1.Proposal {
	return &ledgerv1.Proposal{Command: &ledgerv1.Command{Kind: &ledgerv1.Command_Noop{Noop: &ledgerv1.Noop{}}}}
}

// The first write, fsync or rotation of a leader's log that fails ends the node, which names the file and the cause; nothing
// is acknowledged after it, even if the disk takes writes again.
func TestLeadersDiskFails(t *testing.T) {
	for _, c := range []struct{ operation, file string }{
		{"write", ".wal"}, {"sync", ".wal"}, {"create", ".wal"}, {"commit", "wal-meta.db"},
	} {
		t.Run(c.operation, func(t *testing.T) {
			disk := &sick{operation: c.operation, cause: syscall.ENOSPC}
			n, err := openOn(Config{ID: "n1", Dir: t.TempDir()}, disk.files(16<<10))
			if err != nil {
				t.Fatal(err)
			}
			defer n.Close()
			eventually(t, n, func() bool { return n.Ready() == nil })
			disk.now.Store(true)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for err == nil {
				_, err = n.Propose(ctx, nothing())
			}
			ends(t, n, c.file, "no space left on device")
			disk.now.Store(false)
			if _, err := n.Propose(ctx, nothing()); !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNoQuorum) {
				t.Errorf("a proposal to a node with a sick disk: %v", err)
			}
		})
	}
}

// The same at a follower, and where raft would panic: at its term and its vote. The others go on.
func TestFollowersDiskFails(t *testing.T) {
	for _, c := range []struct{ operation, file string }{{"sync", ".wal"}, {"stable", "wal-meta.db"}} {
		t.Run(c.operation, func(t *testing.T) {
			disk := &sick{operation: c.operation, cause: syscall.EIO}
			nodes, stop := realNodesOn(t, realPeers(t), [3]string{t.TempDir(), t.TempDir(), t.TempDir()},
				[3]files{realFiles(), realFiles(), disk.files(0)})
			defer stop()
			for _, n := range nodes {
				eventually(t, n, func() bool { return n.Ready() == nil })
			}
			follower := nodes[2]
			for follower.leads() {
				if err := follower.raft().LeadershipTransfer().Error(); err != nil {
					t.Fatal(err)
				}
			}
			leader := leaderOf(t, nodes[:2])
			disk.now.Store(true)
			if c.operation == "stable" {
				to := nodes[0]
				if to == leader {
					to = nodes[1]
				}
				if err := leader.raft().LeadershipTransferToServer(raft.ServerID(to.config.ID), to.seat.self.address()).Error(); err != nil {
					t.Fatal(err)
				}
			}
			leader = leaderOf(t, nodes[:2])
			if _, err := leader.Propose(t.Context(), nothing()); err != nil {
				t.Fatal(err)
			}
			ends(t, follower, c.file, "input/output error")
			if _, err := leader.Propose(t.Context(), nothing()); err != nil {
				t.Errorf("two of three cannot go on: %v", err)
			}
		})
	}
}

// A snapshot that cannot be written ends the node: it would keep its log for ever.
func TestSnapshotCannotBeWritten(t *testing.T) {
	n, err := Open(Config{ID: "n1", Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	eventually(t, n, func() bool { return n.Ready() == nil })
	folder := filepath.Join(n.config.Dir, "snapshots")
	if err := errors.Join(os.RemoveAll(folder), os.WriteFile(folder, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := n.raft().Snapshot().Error(); err == nil {
		t.Error("there is a snapshot")
	}
	ends(t, n, "snapshot", "not a directory")
}

// A follower that writes nothing while its leader goes on is not ready, and is again once it has caught up.
func TestFollowerThatStandsIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := emptyBubble(3, 5)
		open := make(chan struct{})
		var stands atomic.Bool
		b.boxes[2].write = func() {
			if stands.Load() {
				<-open
			}
		}
		for i := range b.boxes {
			b.start(t, i)
		}
		defer b.close(t)
		b.settled(t)
		n := b.boxes[2].node
		for n.leads() {
			if err := n.raft().LeadershipTransfer().Error(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		stands.Store(true)
		time.Sleep(4 * time.Second)
		if err := n.Ready(); !errors.Is(err, ErrNoQuorum) || !strings.Contains(err.Error(), "stands at revision") {
			t.Errorf("%v; at revision %d of %d", err, n.Revision(), b.leader(nil).Revision())
		}
		stands.Store(false)
		close(open)
		until(t, "it has caught up", func() bool { return n.Ready() == nil })
	})
}

// The file that names the cluster is whole or not there; one that an older version left empty is said, with what to do.
func TestClusterFileIsWhole(t *testing.T) {
	dir := t.TempDir()
	n := open(t, Config{Dir: dir})
	name := n.View().ClusterID
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "cluster")
	for _, torn := range []string{"", "0123", "0123456789abcdef0123456789abcdeg\n"} {
		if err := os.WriteFile(path, []byte(torn), 0o600); err != nil {
			t.Fatal(err)
		}
		if n, err := Open(Config{ID: "n1", Dir: dir}); err == nil || !strings.Contains(err.Error(), path) ||
			!strings.Contains(err.Error(), "put another replica's file") {
			t.Errorf("%q: %v", torn, err)
			if err == nil {
				n.Close()
			}
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	open(t, Config{Dir: dir})
	if i, err := openIdentity(path); err != nil || string(i.get()) != string(name) {
		t.Errorf("%x, %v", i.get(), err)
	}
	// What stops between the new file and its place leaves the old one.
	if err := os.Mkdir(path+".new", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := replaceFile(path, []byte("other")); err == nil {
		t.Error("written over a folder")
	}
	if i, err := openIdentity(path); err != nil || string(i.get()) != string(name) {
		t.Errorf("%x, %v", i.get(), err)
	}
}
