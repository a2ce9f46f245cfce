package consensus

import (
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// writes is told by all that write to a node's disk. The first write or fsync that fails is the last one: what the disk has
// after it is not known, and a later fsync may succeed though the data is lost. So the node fails, and nothing more is
// written, promised or voted for.
type writes struct {
	mu    sync.Mutex
	fault error
	fail  func(error) // nil until there is a node
}

// check notes why a write failed, and gives it back.
func (w *writes) check(err error) error {
	if err == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault == nil {
		w.fault = fmt.Errorf("the disk takes nothing more: %w", err)
		if w.fail != nil {
			w.fail(w.fault)
		}
	}
	return err
}

// failed is why nothing more may be written, nil while all is well.
func (w *writes) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fault
}

// report has fail called at the first fault, at once if there was one.
func (w *writes) report(fail func(error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = fail
	if w.fault != nil {
		fail(w.fault)
	}
}

// stable is raft's store of its term and its vote. Raft panics where it cannot write its term, so once a write to the disk
// has failed, here or elsewhere, a write does not return.
type stable struct {
	raft.StableStore
	writes *writes
	held   chan struct{} // nil but in tests: a write that failed waits for it
}

// Set implements raft.StableStore.
func (s stable) Set(key, value []byte) error {
	return s.settle(func() error { return s.StableStore.Set(key, value) })
}

// SetUint64 implements raft.StableStore.
func (s stable) SetUint64(key []byte, value uint64) error {
	return s.settle(func() error { return s.StableStore.SetUint64(key, value) })
}

func (s stable) settle(write func() error) error {
	err := s.writes.failed()
	if err == nil {
		if err = write(); err == nil {
			return nil
		}
		err = s.writes.check(fmt.Errorf("write raft's term or vote: %w", err))
	}
	<-s.held
	return err
}

// snapshots are raft's, which tells its logger alone what is wrong with them.
type snapshots struct {
	raft.SnapshotStore
	writes *writes
	unread error // why one could not be read
}

// Open implements raft.SnapshotStore; the file store checks the CRC-64 that it wrote.
func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, data, err := s.SnapshotStore.Open(id)
	if err != nil {
		s.unread = fmt.Errorf("snapshot %s: %w", id, err)
	}
	return meta, data, err
}

// Create implements raft.SnapshotStore.
func (s *snapshots) Create(version raft.SnapshotVersion, index, term uint64, members raft.Configuration, membersIndex uint64,
	transport raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, members, membersIndex, transport)
	if err != nil {
		return nil, s.writes.check(fmt.Errorf("begin a snapshot at entry %d: %w", index, err))
	}
	return watchedSink{sink, s.writes}, nil
}

type watchedSink struct {
	raft.SnapshotSink
	writes *writes
}

// Write implements raft.SnapshotSink.
func (s watchedSink) Write(data []byte) (int, error) {
	n, err := s.SnapshotSink.Write(data)
	return n, s.check(err)
}

// Close implements raft.SnapshotSink.
func (s watchedSink) Close() error { return s.check(s.SnapshotSink.Close()) }

func (s watchedSink) check(err error) error {
	if err == nil {
		return nil
	}
	return s.writes.check(fmt.Errorf("write snapshot %s: %w", s.ID(), err))
}
