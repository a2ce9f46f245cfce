package consensus

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// What a peer sends as a follower's cannot let time pass, or name the cluster: that is the leader's.
func TestFollowersCannotTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBubble(t, 3, 1)
		defer b.close(t)
		leader := b.leader(nil)
		s, err := leader.OpenSession("r1", 3*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		do(t, s, drop(1))
		before := s.ID()
		conn, err := b.dial("n4", leader.seat.self.RPC)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		stream, err := ledgerv1.NewReplicaClient(conn).Follow(metadata.AppendToOutgoingContext(t.Context(), "replica", "x"))
		if err != nil {
			t.Fatal(err)
		}
		tick := &ledgerv1.Proposal{Command: &ledgerv1.Command{Kind: &ledgerv1.Command_Tick{Tick: &ledgerv1.Tick{DeltaMs: math.MaxInt64}}}}
		entry, err := proto.Marshal(&ledgerv1.Entry{Proposals: []*ledgerv1.Proposal{tick}})
		if err != nil {
			t.Fatal(err)
		}
		err = stream.Send(&ledgerv1.FromFollower{Kind: &ledgerv1.FromFollower_Batch{Batch: &ledgerv1.Batch{Number: 1, Entry: entry}}})
		if err != nil {
			t.Fatal(err)
		}
		for {
			m, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if told := m.GetAnswers(); told != nil {
				if told.Answers[0].Result != nil || told.Answers[0].Unknown {
					t.Errorf("the tick was taken: %v", told.Answers[0])
				}
				break
			}
		}
		if do(t, s, drop(1)); s.ID() != before {
			t.Error("a peer ended a session")
		}
	})
}
