package consensus

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"
	walsegment "github.com/hashicorp/raft-wal/segment"
	"google.golang.org/grpc"
)

// cachedEntries stay in memory, so that a leader does not read back what it has just written.
const cachedEntries = 512

// seat is a node's place in a cluster: what raft writes to, what it speaks through, and who starts with it.
type seat struct {
	log       raft.LogStore
	stable    raft.StableStore
	snapshots raft.SnapshotStore
	writes    writes
	mark      *mark // nil: there is no disk
	identity  *identity
	holder    holder
	// listen opens the transport: not before the node has its seat, since raft would answer who asks for a vote.
	listen    func(door) raft.Transport
	transport raft.Transport // nil before
	sever     func()         // ends all connections of raft, for ever; nil in memory
	dial      func(address string) (*grpc.ClientConn, error)
	self      Peer
	// founders are those who make up the cluster at first; used on an empty disk only.
	founders []Peer
	// close gives back what raft does not.
	close func() error
}

// closers are what was opened, in this order.
type closers []func() error

// close closes them from the last to the first.
func (c closers) close() error {
	var faults []error
	for i := len(c) - 1; i >= 0; i-- {
		faults = append(faults, c[i]())
	}
	return errors.Join(faults...)
}

// openSeat takes the directory and the address of c.
func openSeat(c Config, f files) (_ *seat, err error) {
	s, opened, err := openDisk(c, f)
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.close())
		}
	}()
	if err != nil {
		return nil, err
	}
	bound, err := net.Listen("tcp", c.Bind)
	if err != nil {
		return nil, fmt.Errorf("listen for raft on %s: %w", c.Bind, err)
	}
	opened = append(opened, func() error {
		if err := bound.Close(); !errors.Is(err, net.ErrClosed) { // raft closes its transport, if it had one
			return err
		}
		return nil
	})
	s.self, s.founders = c.peers(bound.Addr().String())
	s.close = opened.close
	open := &connections{}
	s.sever = open.sever
	s.listen = func(d door) raft.Transport {
		return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream:  streams{bound, s.self.address(), d, open},
			MaxPool: 3, Timeout: 10 * time.Second, Logger: raftLog(c.Log),
		})
	}
	s.dial = func(address string) (*grpc.ClientConn, error) { return grpc.NewClient(address, c.Dial...) }
	return s, nil
}

// openDisk takes the directory of c: the half of a seat that outlives the process. What was opened is to be closed even if
// there is an error.
func openDisk(c Config, f files) (_ *seat, opened closers, err error) {
	walDir := filepath.Join(c.Dir, "wal")
	if err := os.MkdirAll(walDir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make ledger directory: %w", err)
	}
	unlock, err := lockDir(c.Dir)
	if err != nil {
		return nil, nil, err
	}
	opened = append(opened, unlock)
	logger := raftLog(c.Log)
	opened = append(opened, f.meta.Close) // raft-wal leaves it open, and so locked, where it cannot open a log
	s := &seat{}
	wal, err := openLog(walDir, logger, f.watched(walDir, &s.writes))
	if err != nil {
		return nil, opened, fmt.Errorf("open the ledger's log in %s: %w", walDir, err)
	}
	opened = append(opened, wal.Close)
	cache, err := raft.NewLogCache(cachedEntries, sealed{wal})
	if err != nil {
		return nil, opened, fmt.Errorf("cache ledger log: %w", err)
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(c.Dir, 2, logger)
	if err != nil {
		return nil, opened, fmt.Errorf("open ledger snapshots: %w", err)
	}
	identity, err := openIdentity(filepath.Join(c.Dir, "cluster"))
	if err != nil {
		return nil, opened, fmt.Errorf("open the ledger in %s: %w", c.Dir, err)
	}
	if s.holder, err = openHolder(filepath.Join(c.Dir, "replica"), c.ID); err != nil {
		return nil, opened, fmt.Errorf("open the ledger in %s: %w", c.Dir, err)
	}
	s.log, s.stable, s.snapshots, s.identity = cache, wal, snapshots, identity
	if s.mark, err = openMark(filepath.Join(c.Dir, "committed")); err != nil {
		return nil, opened, fmt.Errorf("open the ledger's mark: %w", err)
	}
	return s, append(opened, s.mark.close), nil
}

// openLog is raftwal.Open, of which a panic is an error too: it has those for files that make no sense.
func openLog(dir string, log hclog.Logger, f files) (wal *raftwal.WAL, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%v", fault)
		}
	}()
	return raftwal.Open(dir, raftwal.WithLogger(log), raftwal.WithMetaStore(f.meta),
		raftwal.WithSegmentFiler(walsegment.NewFiler(dir, f.vfs)), raftwal.WithSegmentSize(f.segmentSize))
}

// lockDir makes sure that one process at a time has dir: raft's own stores would wait for ever.
func lockDir(dir string) (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock ledger directory: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %s: %w", ErrInUse, dir, err), f.Close())
	}
	return f.Close, nil
}

// raftConfig holds the timeouts that were measured: a leader is missed after 300 ms, below 100 ms a busy machine would
// lose leaders that live. It steps down no sooner, for the same reason.
func raftConfig(c Config) *raft.Config {
	r := raft.DefaultConfig()
	r.LocalID = raft.ServerID(c.ID)
	r.HeartbeatTimeout = 300 * time.Millisecond
	r.ElectionTimeout = 300 * time.Millisecond
	r.LeaderLeaseTimeout = 300 * time.Millisecond
	r.CommitTimeout = 5 * time.Millisecond // followers learn at most so much later that an entry is committed
	r.MaxAppendEntries = 512
	r.BatchApplyCh = true
	r.SnapshotThreshold = c.SnapshotThreshold
	r.SnapshotInterval = c.SnapshotInterval
	r.TrailingLogs = c.SnapshotThreshold
	r.ShutdownOnRemove = false // greet tells it apart from a shutdown
	r.NoLegacyTelemetry = true
	r.Logger = raftLog(c.Log)
	return r
}
