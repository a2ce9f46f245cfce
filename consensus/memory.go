package consensus

import (
	"errors"

	"github.com/hashicorp/raft"
)

// Memory is the disk and the raft address of a cluster of one, without any machine below: what a simulation gives a node,
// so that no time passes but the simulated one. It outlives the node, as a disk does, and serves one node at a time.
type Memory struct {
	// Write, if there is one, is called before each write to the log: it may take its time.
	Write func()

	log       *raft.InmemStore
	snapshots *raft.InmemSnapshotStore
	identity  identity
}

// NewMemory returns an empty disk.
func NewMemory() *Memory {
	return &Memory{log: raft.NewInmemStore(), snapshots: raft.NewInmemSnapshotStore()}
}

// Open starts the node that lives in m, as the function Open does for a directory: it founds a cluster of one if m is
// empty, else it goes on from what the last node left.
func (m *Memory) Open(c Config) (*Node, error) {
	c = c.withDefaults()
	address, end := raft.NewInmemTransport(raft.ServerAddress(c.ID))
	self := peerAt(c.ID, address)
	s := &seat{
		log: sealed{slowLog{m.log, m.Write}}, stable: m.log, snapshots: m.snapshots, self: self, founders: []Peer{self},
		identity: &m.identity,
		listen:   func(door) raft.Transport { return end }, close: end.Close,
	}
	n, err := start(c, s)
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return n, nil
}

// slowLog is a log whose writes take time.
type slowLog struct {
	raft.LogStore
	write func()
}

// StoreLogs implements raft.LogStore.
func (s slowLog) StoreLogs(logs []*raft.Log) error {
	if s.write != nil {
		s.write()
	}
	return s.LogStore.StoreLogs(logs)
}
