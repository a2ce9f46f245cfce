package ledger

import (
	"crypto/sha256"
	"hash"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// Field numbers of ledgerv1.Snapshot.
const (
	fieldSessions     = 5
	fieldWorkers      = 6
	fieldReservations = 7
	fieldTenants      = 10
)

// Digest is the SHA-256 of the snapshot's deterministic encoding: equal states have equal digests, whatever their logs
// were. It is taken at every tick while the log waits, so it never builds the whole snapshot.
func (s *State) Digest() [sha256.Size]byte {
	d := digester{hash: sha256.New()}
	d.encode(&ledgerv1.Snapshot{
		Revision: s.revision, ClusterId: s.clusterID, HashKey: s.hashKey, NextSession: s.nextSession,
	})
	_, _ = d.hash.Write(d.record) // a hash takes everything
	for _, c := range s.sessions {
		d.add(fieldSessions, c.snapshot())
	}
	for _, w := range s.workers {
		d.add(fieldWorkers, w.snapshot())
	}
	record := &ledgerv1.Reservation{Key: &ledgerv1.OrderKey{}}
	for _, id := range s.reservationIDs() {
		s.reservations[id].fill(record)
		d.add(fieldReservations, record)
	}
	d.encode(&ledgerv1.Snapshot{ClockMs: s.clockMs, TenantsAt: s.tenantsAt})
	_, _ = d.hash.Write(d.record)
	for _, t := range s.tenants {
		d.add(fieldTenants, t.snapshot())
	}
	return [sha256.Size]byte(d.hash.Sum(nil))
}

// digester hashes records as the fields of one message.
type digester struct {
	hash   hash.Hash
	record []byte
	head   []byte
}

func (d *digester) encode(m proto.Message) {
	var err error
	if d.record, err = (proto.MarshalOptions{Deterministic: true}).MarshalAppend(d.record[:0], m); err != nil {
		panic("ledger: encode the state: " + err.Error()) // only strings can fail, and a decoded log has no such
	}
}

func (d *digester) add(field protowire.Number, m proto.Message) {
	d.encode(m)
	d.head = protowire.AppendTag(d.head[:0], field, protowire.BytesType)
	d.head = protowire.AppendVarint(d.head, uint64(len(d.record)))
	_, _ = d.hash.Write(d.head)
	_, _ = d.hash.Write(d.record)
}
