package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"

	workerv1 "github.com/berthd/berth/api/worker/v1"
)

// arrival takes a worker's replies apart.
type arrival struct {
	r       *Router
	q       *request
	out     output
	flight  *flight
	stop    func(branch int) // tells the worker that no more of a branch is wanted
	strands []strand         // by branch
	left    int              // strands that have not ended
	heard   bool             // the worker has said something: it has the reservation
	usage   usage
	echo    []token   // the prompt's, once they are wanted
	reason  string    // how the last one ended
	first   time.Time // when the first token came
	last    time.Time
}

// strand is what has come of one branch.
type strand struct {
	branch  int
	detok   *detok
	tokens  int
	over    bool // no more text may follow
	ended   bool
	begun   bool    // the prompt was echoed, if it had to be
	waiting []token // told when their text is certain
	logprob float64 // Σ over tokens
}

func newArrival(r *Router, q *request, out output) *arrival {
	a := &arrival{r: r, q: q, out: out, strands: make([]strand, q.bestOf), left: q.bestOf}
	for i := range a.strands {
		a.strands[i] = strand{branch: i, detok: newDetok(q)}
	}
	a.usage.prompt = len(q.prompt)
	q.scores = nil
	return a
}

// receive passes replies on until all branches have ended, by themselves or by a stop string, or something broke.
func (a *arrival) receive(ctx context.Context, stream grpc.ServerStreamingClient[workerv1.GenerateReply]) error {
	for a.left > 0 {
		m, err := stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("its stream ended without a word")
			}
			if cause := context.Cause(stream.Context()); errors.Is(cause, errFenced) {
				err = cause
			}
			return a.r.lostOrGone(ctx, a.q, err, a.usage.completion > 0)
		}
		a.heard = true
		if err := a.hear(m); err != nil {
			return err
		}
	}
	return nil
}

func (a *arrival) hear(m *workerv1.GenerateReply) error {
	switch k := m.Kind.(type) {
	case *workerv1.GenerateReply_Started:
		if err := a.cached(k.Started.CachedTokens); err != nil {
			return err
		}
		return gone(a.out.begin(a.q))
	case *workerv1.GenerateReply_PromptScores:
		return a.scored(k.PromptScores)
	case *workerv1.GenerateReply_Tokens:
		s, err := a.strand(k.Tokens.Branch)
		if err != nil || s.ended {
			return err
		}
		return a.tokens(s, k.Tokens)
	case *workerv1.GenerateReply_Finished:
		s, err := a.strand(k.Finished.Branch)
		if err != nil || s.ended {
			return err
		}
		return a.finished(s, k.Finished)
	}
	return nil
}

// gone makes a failed write what it means.
func gone(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

func (a *arrival) lost(format string, args ...any) error {
	return workerLost(a.q.worker, fmt.Sprintf(format, args...))
}

func (a *arrival) strand(branch uint32) (*strand, error) {
	if int64(branch) >= int64(len(a.strands)) {
		return nil, a.lost("it speaks of branch %d of %d", branch, len(a.strands))
	}
	return &a.strands[branch], nil
}

// scored takes the next scores of the prompt.
func (a *arrival) scored(p *workerv1.PromptScores) error {
	q := a.q
	if int(p.Position) != len(q.scores)+1 || len(q.scores)+len(p.Scores) >= len(q.prompt) || q.promptScoring() == nil {
		return a.lost("it sent %d scores from token %d, after those of %d of %d", len(p.Scores), p.Position, len(q.scores)+1,
			len(q.prompt))
	}
	if err := a.sane(p.Scores); err != nil {
		return err
	}
	q.scores = append(q.scores, p.Scores...)
	return nil
}

// sane refuses scores of tokens that there are none of.
func (a *arrival) sane(scores []*workerv1.Score) error {
	vocab := a.q.card.tok.Len()
	for _, s := range scores {
		if len(s.GetTopIds()) != len(s.GetTopLogprobs()) {
			return a.lost("it sent %d likeliest tokens with %d log-probabilities", len(s.GetTopIds()), len(s.GetTopLogprobs()))
		}
		for _, id := range s.GetTopIds() {
			if id < 0 || int(id) >= vocab {
				return a.lost("it sent id %d as likely, which is outside the vocabulary", id)
			}
		}
	}
	return nil
}

// begin gives the prompt out where it is echoed, before a branch's first text.
func (a *arrival) begin(s *strand) error {
	if s.begun {
		return nil
	}
	s.begun = true
	q := a.q
	if q.promptScoring() != nil && len(q.scores) != len(q.prompt)-1 {
		return a.lost("it sent scores of %d of %d tokens of the prompt", len(q.scores)+1, len(q.prompt))
	}
	if !q.echo {
		return nil
	}
	p := piece{text: q.echoed}
	if q.logprobs {
		if a.echo == nil {
			a.echo = promptTokens(q)
		}
		p.tokens = a.echo
	}
	return gone(a.out.delta(q, s.branch, p))
}

// tokens passes the text of new ids on. A position that is not the next one means that tokens are missing: the answer
// cannot be right any more.
func (a *arrival) tokens(s *strand, t *workerv1.Tokens) error {
	switch most := a.q.maxTokens; {
	case int(t.Position) != s.tokens:
		return a.lost("it sent position %d after %d tokens", t.Position, s.tokens)
	case len(t.Ids) > most-s.tokens:
		return a.lost("it sent %d tokens of at most %d", s.tokens+len(t.Ids), most)
	case a.q.scoring() != nil && len(t.Scores) != len(t.Ids):
		return a.lost("it sent %d scores of %d tokens", len(t.Scores), len(t.Ids))
	}
	if err := a.sane(t.Scores); err != nil {
		return err
	}
	a.timed()
	if err := a.begin(s); err != nil {
		return err
	}
	var p piece
	for i, id := range t.Ids {
		if s.over || id < 0 || int(id) >= a.q.card.tok.Len() {
			return a.lost("it sent id %d, which cannot follow", id)
		}
		a.usage.completion++
		p.ids = append(p.ids, id)
		var score *workerv1.Score
		if a.q.scoring() != nil {
			score = t.Scores[i]
		}
		p.text += s.add(id, score, a.q.echoedRunes)
		if s.detok.matched != "" {
			break
		}
	}
	p.tokens = s.certain()
	if s.detok.matched == "" {
		a.r.flights.produced(a.flight, len(p.ids), a.last)
		return gone(a.out.delta(a.q, s.branch, p))
	}
	if err := gone(a.out.delta(a.q, s.branch, p)); err != nil {
		return err
	}
	if err := a.end(s, finish{reason: "stop", stop: s.detok.matched}); err != nil {
		return err
	}
	if a.left > 0 {
		a.stop(s.branch)
	}
	return nil
}

// add takes a branch's next id and returns the text that is certain now; before is the length of what was echoed.
func (s *strand) add(id int32, score *workerv1.Score, before int) string {
	s.tokens++
	t := token{id: id, from: s.detok.decoded, score: score}
	var text string
	text, s.over = s.detok.add(id)
	t.offset = before + s.detok.begins
	if score != nil {
		s.logprob += float64(finite(score.Logprob))
		if !s.over || s.detok.stopID < 0 || s.detok.include { // a stop id is not part of the answer
			s.waiting = append(s.waiting, t)
		}
	}
	return text
}

// certain are the tokens whose text has been given out, or cannot be cut any more.
func (s *strand) certain() []token {
	n := len(s.waiting)
	if s.detok.pending != "" || s.detok.matched != "" {
		n = 0
		for n < len(s.waiting) && s.waiting[n].from < s.detok.given {
			n++
		}
	}
	out := s.waiting[:n:n]
	s.waiting = s.waiting[n:]
	return out
}

// cached takes the number of prompt tokens that were in the cache, which cannot be more than there are.
func (a *arrival) cached(tokens uint32) error {
	if int(tokens) > a.usage.prompt {
		return a.lost("it found %d of %d prompt tokens in its cache", tokens, a.usage.prompt)
	}
	a.usage.cached = int(tokens)
	return nil
}

func (a *arrival) timed() {
	a.last = a.r.cfg.Now()
	if a.first.IsZero() {
		a.first = a.last
	}
}

func (a *arrival) finished(s *strand, f *workerv1.Finished) error {
	reason, ok := reasonOf(f.Reason)
	if !ok || int(f.OutputTokens) != s.tokens {
		return a.lost("it ended with %v after %d of %d tokens", f.Reason, s.tokens, f.OutputTokens)
	}
	if s.branch == 0 { // what others find is mostly of the first one's making
		if err := a.cached(f.CachedTokens); err != nil {
			return err
		}
	}
	if err := a.begin(s); err != nil {
		return err
	}
	if p := (piece{text: s.detok.end(), tokens: s.certain()}); p.text != "" || len(p.tokens) > 0 {
		if err := gone(a.out.delta(a.q, s.branch, p)); err != nil {
			return err
		}
	}
	end := finish{reason: reason}
	switch {
	case s.detok.matched != "":
		end.reason, end.stop = "stop", s.detok.matched
	case reason == "stop" && slices.Contains(a.q.stopIDs, s.detok.stopID):
		end.stop = s.detok.stopID
	}
	return a.end(s, end)
}

func (a *arrival) end(s *strand, f finish) error {
	s.ended = true
	a.left--
	a.reason = f.reason
	if s.tokens > 0 {
		f.mean = s.logprob / float64(s.tokens)
	}
	return gone(a.out.end(a.q, s.branch, f))
}
