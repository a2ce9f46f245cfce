package consensus

import (
	"fmt"
	"io"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	"github.com/berthd/berth/consensus/ledger"
)

// snapshot is a state that later entries do not change; it is encoded beside them.
type snapshot struct {
	state *ledgerv1.Snapshot
}

// Persist implements raft.FSMSnapshot.
func (s snapshot) Persist(sink raft.SnapshotSink) error {
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(s.state)
	if err == nil {
		_, err = sink.Write(encoded)
	}
	if err != nil {
		_ = sink.Cancel() // the write's error says more
		return fmt.Errorf("persist ledger snapshot: %w", err)
	}
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (snapshot) Release() {}

func readSnapshot(from io.Reader) (*ledger.State, error) {
	encoded, err := io.ReadAll(from)
	if err != nil {
		return nil, fmt.Errorf("read ledger snapshot: %w", err)
	}
	var s ledgerv1.Snapshot
	if err := proto.Unmarshal(encoded, &s); err != nil {
		return nil, fmt.Errorf("decode ledger snapshot: %w", err)
	}
	if !known(s.ProtoReflect()) {
		return nil, fmt.Errorf("read ledger snapshot: %w", errNewer)
	}
	return ledger.Restore(&s)
}
