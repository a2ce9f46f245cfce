package worker

import (
	"google.golang.org/grpc"

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
	if len(n.prompt) > 0 {
		m := &workerv1.PromptScores{Position: t.scored, Scores: n.prompt}
		t.scored += uint32(len(n.prompt))
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
	if len(p.ids) > 0 {
		tokens := &workerv1.Tokens{
			Attempt: t.attempt, Position: t.position[p.branch], Ids: p.ids, Branch: uint32(p.branch), Scores: p.scores,
		}
		t.position[p.branch] += uint32(len(p.ids))
		if err := t.stream.Send(&workerv1.GenerateReply{Kind: &workerv1.GenerateReply_Tokens{Tokens: tokens}}); err != nil {
			return err
		}
	}
	o := &p.state
	if !o.done {
		return nil
	}
	return t.stream.Send(&workerv1.GenerateReply{Kind: &workerv1.GenerateReply_Finished{Finished: &workerv1.Finished{
		Reason: o.reason, CachedTokens: uint32(o.history.cached), OutputTokens: uint32(o.output),
		Preemptions: uint32(o.history.preemptions), Branch: uint32(p.branch),
	}}})
}
