package consensus

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus/ledger"
)

// machine drives the ledger by raft. Only raft's own goroutine touches state; the rest of the world reads published.
type machine struct {
	state     *ledger.State
	published atomic.Pointer[published]

	digests digests

	identity   *identity
	audit      Audit        // nil: nobody looks
	fail       func(error)  // tells the node that it cannot go on
	committed  func(uint64) // tells it up to which entry all are committed
	stopped    error        // nothing is applied after an entry that could not be: the replicas would differ
	unrestored error        // why the last snapshot could not be restored
}

// published is a view and the channel that is closed when the next one replaces it.
type published struct {
	view    *ledger.View
	changed chan struct{}
}

func newMachine(i *identity, fail func(error), committed func(uint64), audit Audit) *machine {
	m := &machine{state: ledger.New(), identity: i, fail: fail, committed: committed, audit: audit}
	m.published.Store(&published{view: m.state.View(), changed: make(chan struct{})})
	return m
}

// ApplyBatch implements raft.BatchingFSM: the answer to an entry is []*ledgerv1.Result, one a proposal, or an error once
// the machine has stopped.
func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	for i, entry := range logs {
		if entry.Type != raft.LogCommand {
			continue
		}
		if m.stopped == nil {
			var e ledgerv1.Entry
			if err := readEntry(entry.Data, &e); err == nil {
				answers[i] = m.applyEntry(&e)
				continue
			} else {
				m.stopped = fmt.Errorf("entry %d of the log cannot be applied: %w", entry.Index, err)
				m.fail(m.stopped)
			}
		}
		answers[i] = m.stopped
	}
	if len(logs) > 0 {
		m.committed(logs[len(logs)-1].Index)
	}
	m.publish()
	return answers
}

// errNewer says that an entry has what this version does not know. To pass it over would make the replicas differ.
var errNewer = errors.New("a newer version wrote it: upgrade this router too")

// readEntry decodes an entry of which all is known.
func readEntry(data []byte, e *ledgerv1.Entry) error {
	if err := proto.Unmarshal(data, e); err != nil {
		return err
	}
	if !known(e.ProtoReflect()) {
		return errNewer
	}
	for _, p := range e.Proposals {
		if err := ledger.Validate(p); err != nil {
			return err
		}
	}
	return nil
}

// known says whether a message, and all messages in it, have no field that this version does not know.
func known(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return false
	}
	all := true
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Message() == nil || f.IsMap():
		case f.IsList():
			for i := range v.List().Len() {
				all = all && known(v.List().Get(i).Message())
			}
		default:
			all = known(v.Message())
		}
		return all
	})
	return all
}

// Apply implements raft.FSM.
func (m *machine) Apply(entry *raft.Log) any { return m.ApplyBatch([]*raft.Log{entry})[0] }

func (m *machine) applyEntry(e *ledgerv1.Entry) []*ledgerv1.Result {
	results := make([]*ledgerv1.Result, len(e.Proposals))
	for i, p := range e.Proposals {
		results[i] = m.state.Apply(p)
		if m.audit != nil {
			m.audit(m.state, p, results[i])
		}
		if p.Command.GetTick() != nil {
			m.digests.keep(Digest{Revision: m.state.Revision(), Digest: m.state.Digest()})
		}
	}
	return results
}

func (m *machine) publish() {
	next := &published{view: m.state.View(), changed: make(chan struct{})}
	if err := m.identity.is(next.view.ClusterID); err != nil {
		m.fail(err)
	}
	close(m.published.Swap(next).changed)
}

// Snapshot implements raft.FSM.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) {
	if m.stopped != nil {
		return nil, m.stopped
	}
	return snapshot{m.state.Snapshot()}, nil
}

// Restore implements raft.FSM.
func (m *machine) Restore(from io.ReadCloser) error {
	defer func() { _ = from.Close() }() // read only: nothing to lose
	state, err := readSnapshot(from)
	if err != nil {
		m.unrestored = err
		return err
	}
	if shown := m.state.Revision(); state.Revision() < shown { // raft sends a newer one then
		return fmt.Errorf("the snapshot is of revision %d, and %d was shown already", state.Revision(), shown)
	}
	m.state = state
	m.publish()
	return nil
}
