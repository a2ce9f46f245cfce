package worker

import (
	"slices"

	"google.golang.org/grpc"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
)

type generateStream = grpc.ServerStreamingServer[workerv1.GenerateReply]

// relay sends what the request's branches say until all have ended or the client has left.
func relay(stream generateStream, e *engine, q *request) error {
	t := teller{stream: stream, attempt: q.ask.Attempt, position: make([]uint32, q.count), scored: 1}
	var n news
	for {
		if err := q.out.next(stream.Context(), e.done, &n); err != nil {
			return err
		}
		if n.over && n.err != nil {
			return n.err
		}
		if err := t.tell(&n); err != nil {
			return err
		}
		if n.over {
			return nil
		}
	}
}

// maxTold is how many tokens a reply speaks of at most: with all that may be told of each, far below what a message may
// hold. While a client is slow, more than that may gather.
const maxTold = 1024

// teller turns news into replies.
type teller struct {
	stream    generateStream
	attempt   uint64
	announced bool
	scored    uint32   // index of the next token of the prompt whose score is told
	position  []uint32 // of the next token, by branch
}

func (t *teller) tell(n *news) error {
	for i := range n.parts {
		p := &n.parts[i]
		if !t.announced && p.state.started {
			t.announced = true
			started := &workerv1.Started{CachedTokens: uint32(p.state.cached)}
			if err := t.stream.Send(&workerv1.GenerateReply{Kind: &workerv1.GenerateReply_Started{Started: started}}); err != nil {
				return err
			}
		}
	}
	for scores := range slices.Chunk(n.prompt, maxTold) {
		m := &workerv1.PromptScores{Position: t.scored, Scores: scores}
		t.scored += uint32(len(scores))
		if err := t.stream.Send(&workerv1.GenerateReply{Kind: &workerv1.GenerateReply_PromptScores{PromptScores: m}}); err != nil {
			return err
		}
	}
	for i := range n.parts {
		if err := t.tellPart(&n.parts[i]); err != nil {
			return err
		}
	}
	return nil
}

func (t *teller) tellPart(p *part) error {
	ids, scores := p.ids, p.scores
	for len(ids) > 0 {
		n := min(len(ids), maxTold)
		scored := min(n, len(scores)) // all or none
		tokens := &workerv1.Tokens{
			Attempt: t.attempt, Position: t.position[p.branch], Ids: ids[:n], Branch: uint32(p.branch), Scores: scores[:scored],
		}
		ids, scores = ids[n:], scores[scored:]
		t.position[p.branch] += uint32(n)
		if err := t.stream.Send(&workerv1.GenerateReply{Kind: &workerv1.GenerateReply_Tokens{Tokens: tokens}}); err != nil {
			return err
		}
	}
	o := &p.state
	if !o.done || o.reason == ledgerv1.FinishReason_FINISH_REASON_ERROR { // the stream's error follows (W6)
		return nil
	}
	return t.stream.Send(&workerv1.GenerateReply{Kind: &workerv1.GenerateReply_Finished{Finished: &workerv1.Finished{
		Reason: o.reason, CachedTokens: uint32(o.history.cached), OutputTokens: uint32(o.output),
		Preemptions: uint32(o.history.preemptions), Branch: uint32(p.branch),
	}}})
}
