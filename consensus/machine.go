package consensus

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus/ledger"
)

// machine drives the ledger by raft. Only raft's own goroutine touches state; the rest of the world reads published.
type machine struct {
	state     *ledger.State
	published atomic.Pointer[published]

	digests digests
}

// published is a view and the channel that is closed when the next one replaces it.
type published struct {
	view    *ledger.View
	changed chan struct{}
}

func newMachine() *machine {
	m := &machine{state: ledger.New()}
	m.published.Store(&published{view: m.state.View(), changed: make(chan struct{})})
	return m
}

// ApplyBatch implements raft.BatchingFSM: the answer to an entry is []*ledgerv1.Result, one a proposal.
func (m *machine) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, len(logs))
	for i, entry := range logs {
		if entry.Type == raft.LogCommand {
			answers[i] = m.applyEntry(entry)
		}
	}
	m.publish()
	return answers
}

// Apply implements raft.FSM.
func (m *machine) Apply(entry *raft.Log) any { return m.ApplyBatch([]*raft.Log{entry})[0] }

func (m *machine) applyEntry(entry *raft.Log) []*ledgerv1.Result {
	var e ledgerv1.Entry
	if err := proto.Unmarshal(entry.Data, &e); err != nil {
		panic(fmt.Sprintf("consensus: log entry %d: %v", entry.Index, err)) // the replicas would differ from here on
	}
	results := make([]*ledgerv1.Result, len(e.Proposals))
	for i, p := range e.Proposals {
		results[i] = m.state.Apply(p)
		if p.Command.GetTick() != nil {
			m.digests.keep(Digest{Revision: m.state.Revision(), Digest: m.state.Digest()})
		}
	}
	return results
}

func (m *machine) publish() {
	next := &published{view: m.state.View(), changed: make(chan struct{})}
	close(m.published.Swap(next).changed)
}

// Snapshot implements raft.FSM.
func (m *machine) Snapshot() (raft.FSMSnapshot, error) { return snapshot{m.state.Snapshot()}, nil }

// Restore implements raft.FSM.
func (m *machine) Restore(from io.ReadCloser) error {
	defer func() { _ = from.Close() }() // read only: nothing to lose
	state, err := readSnapshot(from)
	if err != nil {
		return err
	}
	m.state = state
	m.publish()
	return nil
}
