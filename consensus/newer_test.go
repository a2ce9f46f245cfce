package consensus

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// newer are a noop with a field, and a command, that this version does not know, at every depth of an entry.
func newer(t *testing.T) map[string]*ledgerv1.Entry {
	t.Helper()
	field := protowire.AppendVarint(protowire.AppendTag(nil, 1000, protowire.VarintType), 1)
	entries := map[string]*ledgerv1.Entry{}
	for what, spoil := range map[string]func(*ledgerv1.Entry){
		"a field of the entry":    func(e *ledgerv1.Entry) { e.ProtoReflect().SetUnknown(field) },
		"a field of the proposal": func(e *ledgerv1.Entry) { e.Proposals[0].ProtoReflect().SetUnknown(field) },
		"a field of the command":  func(e *ledgerv1.Entry) { e.Proposals[0].Command.GetNoop().ProtoReflect().SetUnknown(field) },
		"a command": func(e *ledgerv1.Entry) {
			e.Proposals[0].Command = &ledgerv1.Command{}
			e.Proposals[0].Command.ProtoReflect().SetUnknown(field)
		},
	} {
		e := &ledgerv1.Entry{Proposals: []*ledgerv1.Proposal{nothing()}}
		spoil(e)
		entries[what] = e
	}
	return entries
}

// N6: what a newer version wrote is not passed over: the node says so and stops.
func TestWrittenByANewerVersion(t *testing.T) {
	for what, e := range newer(t) {
		synctest.Test(t, func(t *testing.T) {
			b := newBubble(t, 1, 1)
			defer b.close(t)
			n := b.leader(nil)
			data, err := proto.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			if err := n.raft().Apply(data, 0).Error(); err != nil {
				t.Fatal(err)
			}
			if err := n.failure(); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "a newer version wrote it") {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

// A leader of an older version does not append what it does not know: the follower is told and stops, the leader goes on.
func TestLeaderOfAnOlderVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 3, 2)
		defer b.close(t)
		b.settled(t)
		leader := b.leader(nil)
		n := b.nodes[slices.IndexFunc(b.nodes, func(n *Node) bool { return n != leader })]
		data, err := proto.Marshal(newer(t)["a field of the command"])
		if err != nil {
			t.Fatal(err)
		}
		n.link.Load().forward(data)
		until(t, "it is told", func() bool { return n.failure() != nil })
		if err := n.failure(); !strings.Contains(err.Error(), "is of an older version") {
			t.Error(err)
		}
		if _, err := leader.Propose(t.Context(), nothing()); err != nil || leader.failure() != nil {
			t.Errorf("%v, %v", err, leader.failure())
		}
	})
}
