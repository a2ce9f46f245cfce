package router

import (
	"context"
	"fmt"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/consensus/ledger"
)

// request is one admitted or waiting request. It belongs to its handler's goroutine.
type request struct {
	params
	id          string
	chat        bool
	model       string // the name that the client used
	card        *card
	prompt      []int32
	alone       int    // longest branch of any worker of the model, alone
	first       int    // number of its first choice: a request may have several prompts
	echoed      string // the prompt's text, if echo wants it
	echoedRunes int
	guest       *guest
	openEnded   bool   // max_tokens was left out
	batch       *batch // with the request's other prompts; nil if there are none

	matcher  *stopMatcher // of its stop strings, once it is made
	chains   *chains
	ticket   *ticket
	admitted bool
	fatal    uint32            // steps with it, on workers, that did not end in time
	worker   string            // last one that had it
	scores   []*workerv1.Score // of the prompt's tokens but the first, as they come
	usage    usage
}

// isAdmitted says whether the request, or another of its prompts, was admitted before.
func (q *request) isAdmitted() bool { return q.admitted || q.batch != nil && q.batch.admitted.Load() }

// stopStrings is made once for all of the request's choices.
func (q *request) stopStrings() *stopMatcher {
	if q.matcher == nil {
		q.matcher = newStopMatcher(q.stops)
	}
	return q.matcher
}

// total is the length of the branch at its end.
func (q *request) total() int { return len(q.prompt) + q.maxTokens }

// loadPatience is how long a request waits for the card of a worker that has just been met, as all are by a router that has
// just been started.
const loadPatience = 2 * time.Second

// lookup finds a model by one of its names, if the guest may use it: the card that most of its watched workers have.
func (r *Router) lookup(ctx context.Context, g *guest, name string) (*card, error) {
	patience, stop := context.WithTimeout(ctx, loadPatience)
	defer stop()
	for {
		heard := r.bell.heard()
		k, loading, err := r.lookupNow(g, name)
		if !loading {
			return k, err
		}
		select {
		case <-heard:
		case <-patience.Done():
			if ctx.Err() != nil {
				return nil, errGone
			}
			return nil, err
		}
	}
}

// lookupNow is lookup as things are; loading: there is an error now, and soon there may be none.
func (r *Router) lookupNow(g *guest, name string) (k *card, loading bool, err error) {
	if !g.may(name) && knownModel(r.cfg.Ledger.View(), name) {
		return nil, false, forbiddenModel(name)
	}
	known, fault := false, "none is attached"
	votes := map[*card]int{}
	var best *card
	members := r.members.snapshot()
	for _, w := range r.cfg.Ledger.View().Workers {
		if !serves(w.Info, name) {
			continue
		}
		known = true
		m, attached := members[w.Name]
		switch {
		case !attached || m.incarnation != w.Incarnation:
			loading = loading || w.Incarnation != 0
			continue
		case m.card == nil:
			if fault = "its tokenizer is being fetched"; m.cardFault != "" {
				fault = m.cardFault
			}
			loading = loading || m.cardFault == ""
			continue
		}
		votes[m.card]++
		if best == nil || votes[m.card] > votes[best] {
			best = m.card
		}
	}
	switch {
	case best != nil:
		return best, false, nil
	case known:
		return nil, loading, noWorker(name, fault)
	}
	return nil, false, modelNotFound(name)
}

// reach is how far a model's attached workers go.
type reach struct {
	length   int // longest branch that any allows
	alone    int // longest that any has pages for, at most its length
	capacity uint64
	geometry func(tokens int) uint64 // pages, on the worker that reaches farthest
}

func (r *Router) reach(model string, k *card) reach {
	out := reach{geometry: func(int) uint64 { return 0 }}
	members := r.members.snapshot()
	for _, w := range r.cfg.Ledger.View().Workers {
		m, attached := members[w.Name]
		if !attached || m.incarnation != w.Incarnation || m.card == nil || m.card.print != k.print || !serves(w.Info, model) {
			continue
		}
		out.length = max(out.length, int(min(w.Info.GetMaxModelLen(), 1<<31)))
		if alone := aloneLimit(w); alone > out.alone {
			out.alone, out.capacity = alone, w.Capacity
			out.geometry = func(tokens int) uint64 { return uint64(w.Geometry.Demand(tokens).Pages) }
		}
	}
	return out
}

// promptLimit is how many ids of a prompt are read: what the model's workers allow or, while there is none, the queue.
func (r *Router) promptLimit(to reach) int {
	if to.length > 0 {
		return to.length
	}
	return r.cfg.QueueTokens
}

// bound checks the request against what the model's workers can hold at all, and resolves an omitted max_tokens to what
// is left.
func (q *request) bound(to reach) error {
	q.alone = to.alone
	asked := q.maxTokens
	if asked < 0 {
		asked = 1
	}
	if to.length > 0 && len(q.prompt)+asked > to.length {
		return contextExceeded(len(q.prompt), asked, to.length, false)
	}
	if to.length > 0 && len(q.prompt)+asked > to.alone {
		return capacityError(len(q.prompt), asked, to.alone, to.geometry(len(q.prompt)+asked), to.capacity)
	}
	if q.openEnded = q.maxTokens < 0; q.openEnded {
		q.maxTokens = max(1, to.alone-len(q.prompt))
	}
	if q.minTokens > q.maxTokens {
		return invalid("min_tokens", "min_tokens %d is above the %d tokens that there is room for", q.minTokens, q.maxTokens)
	}
	return nil
}

// contextExceeded begins as OpenAI's error does: clients look for these words. What is more may not be known of a prompt
// that is far too long than that it has at least so many tokens.
func contextExceeded(prompt, maxTokens, length int, atLeast bool) *Error {
	least := ""
	if atLeast {
		least = "at least "
	}
	return &Error{kind: kindContext, Param: "max_tokens", Numbers: map[string]any{
		"prompt_tokens": prompt, "max_tokens": maxTokens, "max_model_len": length, "at_least": atLeast,
	}, Message: fmt.Sprintf("This model's maximum context length is %d tokens. However, you requested %s%d tokens (%d in "+
		"the prompt, %d for the completion). Please reduce the length of the prompt or completion.",
		length, least, prompt+maxTokens, prompt, maxTokens)}
}

// servedModel is one name of a model that is served.
type servedModel struct {
	name, root string
	length     int
}

// served lists the models of attached workers whose card is here, in the order of worker and name.
func (r *Router) served(g *guest) []servedModel {
	var out []servedModel
	at := map[string]int{}
	members := r.members.snapshot()
	for _, w := range r.cfg.Ledger.View().Workers {
		if m, ok := members[w.Name]; !ok || m.card == nil || m.incarnation != w.Incarnation {
			continue
		}
		for _, name := range w.Info.GetModels() {
			if !g.may(name) {
				continue
			}
			i, listed := at[name]
			if !listed {
				i = len(out)
				at[name] = i
				out = append(out, servedModel{name: name, root: w.Info.Models[0]})
			}
			out[i].length = max(out[i].length, int(min(w.Info.GetMaxModelLen(), 1<<31)))
		}
	}
	return out
}

// knownModel says whether a name may be a label.
func knownModel(v *ledger.View, name string) bool {
	for _, w := range v.Workers {
		if serves(w.Info, name) {
			return true
		}
	}
	return false
}

// stopIDsOf are the ids that end the branch on the worker: the client's, and the model's own unless ignored.
func (q *request) stopIDsOf() []int32 {
	out := append([]int32(nil), q.stopIDs...)
	if !q.ignoreEOS {
		out = append(out, q.card.end...)
	}
	return out
}

// mustEnd refuses a request that no token could begin: all of the vocabulary ends it, and it must not end yet.
func (q *request) mustEnd() error {
	if q.minTokens == 0 {
		return nil
	}
	ends := map[int32]bool{}
	for _, id := range q.stopIDsOf() {
		ends[id] = true
	}
	if len(ends) >= q.card.tok.Len() {
		return invalid("min_tokens", "min_tokens %d needs a token that is not in stop_token_ids, and all %d are", q.minTokens, len(ends))
	}
	return nil
}

// finish is how an answer ended, in OpenAI's words.
type finish struct {
	reason string  // stop, length
	stop   any     // what stopped it, as vLLM's stop_reason: a string, an id, or nil
	mean   float64 // log-probability of a token, if they were scored
}

type usage struct{ prompt, completion, cached int }

func (u *usage) add(o usage) {
	u.prompt, u.completion, u.cached = u.prompt+o.prompt, u.completion+o.completion, u.cached+o.cached
}

func reasonOf(r ledgerv1.FinishReason) (string, bool) {
	switch r {
	case ledgerv1.FinishReason_FINISH_REASON_STOP:
		return "stop", true
	case ledgerv1.FinishReason_FINISH_REASON_LENGTH:
		return "length", true
	}
	return "", false
}
