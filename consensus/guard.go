package consensus

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged says that what is on the disk is not what was written there.
var errDamaged = errors.New("its checksum is wrong: the disk has changed it, or another version wrote it")

// errLost says that committed entries are not there any more.
var errLost = errors.New("is lost: the disk has changed it, or files are missing")

// sealed is a log whose entries carry their CRC-32C as an extension that nobody above sees, so that none can change
// unnoticed: raft-wal itself checks the newest batch alone, and takes no other form of an entry.
type sealed struct{ raft.LogStore }

// seal is the CRC-32C of all of an entry that means anything.
func seal(l *raft.Log) uint32 {
	var head [17]byte
	binary.LittleEndian.PutUint64(head[:], l.Index)
	binary.LittleEndian.PutUint64(head[8:], l.Term)
	head[16] = byte(l.Type)
	return crc32.Update(crc32.Update(crc32.Checksum(head[:], castagnoli), castagnoli, l.Data), castagnoli, l.Extensions)
}

// StoreLog implements raft.LogStore.
func (s sealed) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (s sealed) StoreLogs(logs []*raft.Log) error {
	copies := make([]raft.Log, len(logs))
	out := make([]*raft.Log, len(logs))
	for i, l := range logs {
		copies[i], out[i] = *l, &copies[i]
		end := len(l.Extensions)
		copies[i].Extensions = binary.LittleEndian.AppendUint32(l.Extensions[:end:end], seal(l))
	}
	return s.LogStore.StoreLogs(out)
}

// GetLog implements raft.LogStore. raft-wal panics at some entries that make no sense.
func (s sealed) GetLog(index uint64, l *raft.Log) (err error) {
	defer func() {
		if recover() != nil {
			err = errDamaged
		}
	}()
	if err := s.LogStore.GetLog(index, l); err != nil {
		return err
	}
	end := len(l.Extensions) - 4
	if end < 0 || l.Index != index {
		return errDamaged
	}
	want := binary.LittleEndian.Uint32(l.Extensions[end:])
	if l.Extensions = l.Extensions[:end:end]; end == 0 {
		l.Extensions = nil
	}
	if seal(l) != want {
		return errDamaged
	}
	return nil
}

// IsMonotonic implements raft.MonotonicLogStore.
func (s sealed) IsMonotonic() bool { return monotonic(s.LogStore) }

func monotonic(s raft.LogStore) bool {
	m, ok := s.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// guard is raft's log. Raft panics where it cannot read an entry; so while the node runs, a read that fails ends the
// node, and does not return. A write that fails ends the node too, and raft is told: a leader stops leading.
type guard struct {
	raft.LogStore
	writes  *writes
	dir     string
	running atomic.Bool
	hung    atomic.Bool // raft will not come back from a read
	fail    func(error)
	held    chan struct{} // nil but in tests: a read that failed waits for it
}

// GetLog implements raft.LogStore. An entry that is not there is an answer, once the node runs: its peers get a snapshot.
func (g *guard) GetLog(index uint64, out *raft.Log) error {
	err := g.LogStore.GetLog(index, out)
	running := g.running.Load()
	if err == nil || running && errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	err = fmt.Errorf("entry %d of the log in %s cannot be read: %w", index, g.dir, err)
	if running {
		g.hung.Store(true)
		g.fail(err)
		<-g.held
	}
	return err
}

// StoreLog implements raft.LogStore.
func (g *guard) StoreLog(l *raft.Log) error { return g.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (g *guard) StoreLogs(logs []*raft.Log) error {
	if err := g.writes.failed(); err != nil || len(logs) == 0 {
		return err
	}
	if err := g.LogStore.StoreLogs(logs); err != nil {
		return g.writes.check(fmt.Errorf("write entry %d of the log in %s: %w", logs[0].Index, g.dir, err))
	}
	return nil
}

// DeleteRange implements raft.LogStore.
func (g *guard) DeleteRange(low, high uint64) error {
	if err := g.writes.failed(); err != nil {
		return err
	}
	if err := g.LogStore.DeleteRange(low, high); err != nil {
		return g.writes.check(fmt.Errorf("remove entries %d to %d of the log in %s: %w", low, high, g.dir, err))
	}
	return nil
}

// IsMonotonic implements raft.MonotonicLogStore.
func (g *guard) IsMonotonic() bool { return monotonic(g.LogStore) }

// newRaft is raft.NewRaft without its panics: it has those for a log that cannot be read.
func newRaft(c *raft.Config, m *machine, s *seat, log *guard, shots *snapshots) (r *raft.Raft, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("%v", fault)
		}
		if err != nil {
			err = errors.Join(err, shots.unread, m.unrestored)
		}
	}()
	return raft.NewRaft(c, m, log, stable{StableStore: s.stable, writes: &s.writes}, shots, s.transport)
}

// mark is the index up to which the log was known to be committed, in a file beside the log: what raft-wal takes for a
// batch that was being written when the machine stopped, it cuts off in silence. It is written after each commit and not
// flushed: the log was, so a mark is never ahead of its log. A nil mark is that of a node without a disk.
type mark struct {
	file *os.File
	mu   sync.Mutex
	last uint64 // in the file; 0 if there was none, or none that could be read
}

func openMark(path string) (*mark, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	m, data := &mark{file: f}, make([]byte, 12)
	if _, err := f.ReadAt(data, 0); err == nil && binary.LittleEndian.Uint32(data[8:]) == crc32.Checksum(data[:8], castagnoli) {
		m.last = binary.LittleEndian.Uint64(data)
	}
	return m, nil
}

func (m *mark) read() uint64 {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}

// write moves the mark forward: a log that is applied anew was committed long before.
func (m *mark) write(index uint64) error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if index <= m.last {
		return nil
	}
	data := binary.LittleEndian.AppendUint64(nil, index)
	data = binary.LittleEndian.AppendUint32(data, crc32.Checksum(data, castagnoli))
	if _, err := m.file.WriteAt(data, 0); err != nil {
		return err
	}
	m.last = index
	return nil
}

func (m *mark) close() error { return m.file.Close() }
