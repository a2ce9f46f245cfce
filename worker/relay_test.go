package worker

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/model"
)

// heardStream keeps what it is sent; then runs before it takes the next message.
type heardStream struct {
	grpc.ServerStreamingServer[workerv1.GenerateReply]
	ctx     context.Context
	replies []*workerv1.GenerateReply
	then    func()
}

func (s *heardStream) Context() context.Context { return s.ctx }

func (s *heardStream) Send(m *workerv1.GenerateReply) error {
	s.replies = append(s.replies, proto.CloneOf(m))
	if s.then != nil {
		s.then()
	}
	return nil
}

// TestGatheredNewsIsToldInParts: what a slow client has let gather is told in messages of a bounded size, in order.
func TestGatheredNewsIsToldInParts(t *testing.T) {
	const many = 32_000
	full := &workerv1.Score{Logprob: -1.5, Rank: 262_143}
	for i := range model.MaxTop {
		full.TopIds, full.TopLogprobs = append(full.TopIds, 262_143-int32(i)), append(full.TopLogprobs, -float32(i)-0.1)
	}
	q := newRequest(&workerv1.GenerateRequest{Branches: 2})
	for i := range int32(many) {
		q.out.put(1, i, full)
		q.out.putPrompt([]*workerv1.Score{full})
	}
	for branch := range 2 {
		q.out.update(branch, func(o *outcome) { o.started, o.done, o.reason = true, true, ledgerv1.FinishReason_FINISH_REASON_STOP })
	}
	q.out.end(nil)
	s := &heardStream{ctx: t.Context()}
	if err := relay(s, &engine{}, q); err != nil {
		t.Fatal(err)
	}
	scores, tokens, ended := 1, 0, 0
	for _, m := range s.replies {
		if size := proto.Size(m); size > 1<<20 {
			t.Fatalf("a message of %d bytes", size)
		}
		switch k := m.Kind.(type) {
		case *workerv1.GenerateReply_PromptScores:
			if int(k.PromptScores.Position) != scores {
				t.Fatalf("scores from %d after %d", k.PromptScores.Position, scores)
			}
			scores += len(k.PromptScores.Scores)
		case *workerv1.GenerateReply_Tokens:
			if got := k.Tokens; int(got.Position) != tokens || got.Branch != 1 || got.Ids[0] != int32(tokens) || len(got.Scores) != len(got.Ids) {
				t.Fatalf("tokens from %d after %d", got.Position, tokens)
			}
			tokens += len(k.Tokens.Ids)
		case *workerv1.GenerateReply_Finished:
			ended++
		}
	}
	if scores != many+1 || tokens != many || ended != 2 {
		t.Errorf("told %d scores, %d tokens, %d ends", scores, tokens, ended)
	}
}

// TestFailedBranchesAreNotFinished: a request that failed ends with its stream's error, however far the relay has come when
// the engine ends its branches.
func TestFailedBranchesAreNotFinished(t *testing.T) { // W6
	e := alone(t, 100)
	q := newRequest(&workerv1.GenerateRequest{
		Reservation: 1, Incarnation: 1, ShareGroup: "g", Pages: 40, Prompt: prompt(1, 9), MaxTokens: 5, Branches: 3, Slots: 3,
		Key: &ledgerv1.OrderKey{Rank: 1, Index: 1},
	})
	if err := e.admit(q); err != nil {
		t.Fatal(err)
	}
	if err := e.step(e.sched.schedule()); err != nil {
		t.Fatal(err)
	}
	e.leave(q.branches[2], ledgerv1.FinishReason_FINISH_REASON_ERROR) // endAll's first
	broken := errors.New("broken")
	s := &heardStream{ctx: t.Context(), then: func() {
		if !q.out.over {
			e.endAll(q, ledgerv1.FinishReason_FINISH_REASON_ERROR, broken)
		}
	}}
	if err := relay(s, e, q); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	for _, m := range s.replies {
		if f := m.GetFinished(); f != nil {
			t.Errorf("told %v", f)
		}
	}
}
