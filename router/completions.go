package router

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
)

// completions serves /v1/completions and /v1/chat/completions.
func (r *Router) completions(w http.ResponseWriter, req *http.Request) error {
	ctx := req.Context()
	if err := r.drain.begin(); err != nil {
		return err
	}
	defer r.drain.end()
	f, err := r.readBody(w, req)
	if err != nil {
		return err
	}
	defer f.done() // for a panic
	qs, err := r.prepare(ctx, f, strings.HasSuffix(req.URL.Path, "/chat/completions"))
	f.done()
	if err != nil {
		return err
	}
	created, q := r.cfg.Now().Unix(), qs[0]
	r.tellBudget(w, q.guest)
	if !q.stream {
		return r.generateAll(ctx, qs, newBody(w, r.cfg.WriteTimeout, qs, created))
	}
	out := newEvents(w, r.cfg.WriteTimeout, qs, created)
	out.chunked = req.ProtoMajor == 1 && req.ProtoMinor == 1
	stop := out.keepAlive(r.cfg.KeepAlive)
	defer stop()
	err = r.generateAll(ctx, qs, out)
	stop()
	if err == nil || !out.begun || errors.Is(err, errGone) {
		return err
	}
	e := asError(err)
	r.trace.refused(e)
	r.cfg.Log.Warn("stream broken off", "request_id", q.id, "error", err.Error())
	out.fail(e)
	r.trace.note(ctx, func(rec *record) { rec.fault = e })
	return nil
}

// prepare reads a request until it is known what to run, and that it can run at all: one for each of its prompts.
func (r *Router) prepare(ctx context.Context, f *fields, chat bool) ([]*request, error) {
	name, ok := f.text("model")
	if !ok {
		f.fail(invalid("model", "model is missing: GET /v1/models lists those that exist"))
	}
	if f.fault != nil {
		return nil, f.fault
	}
	r.trace.note(ctx, func(rec *record) { rec.model = name })
	if err := r.quorum(ctx); err != nil {
		return nil, err
	}
	g := guestOf(ctx)
	k, err := r.lookup(ctx, g, name)
	if err != nil {
		return nil, err
	}
	q := request{guest: g, id: requestID(ctx), chat: chat, model: name, card: k, params: readParams(f, chat, k.tok.Len())}
	if f.fault == nil {
		f.fault = q.mustEnd()
	}
	if f.fault != nil {
		return nil, f.fault
	}
	if err := r.queue.crowded(entry{tenant: g.id, shared: g.tenant != nil}, r.cfg.Now()); err != nil {
		return nil, err
	}
	if err := r.affords(r.cfg.Ledger.View(), g); err != nil {
		return nil, err
	}
	r.trace.note(ctx, func(rec *record) { rec.answer, rec.asked = q.answerID(), &q.params })
	to := r.reach(name, k)
	prompts, err := r.prompts(ctx, f, &q, to)
	if err != nil {
		return nil, err
	}
	if len(prompts) > 1 {
		q.batch = &batch{}
	}
	qs := make([]*request, len(prompts))
	for i, p := range prompts {
		one := q
		one.prompt, one.first = p.ids, i*q.bestOf
		if i > 0 && !q.seeded { // equal prompts are to differ as equal requests do
			one.sampling = proto.CloneOf(q.sampling)
			one.sampling.Seed = rand.Uint64()
		}
		if q.echo {
			if one.echoed = p.text; p.text == "" {
				one.echoed = k.tok.Decode(p.ids, q.keepSpecial)
			}
			one.echoedRunes = utf8.RuneCountInString(one.echoed)
		}
		if err := one.bound(to); err != nil {
			return nil, err
		}
		qs[i] = &one
	}
	return qs, nil
}

// prompts turns what a request says into tokens, large ones in turns.
func (r *Router) prompts(ctx context.Context, f *fields, q *request, to reach) (out []prompt, err error) {
	_, span := r.trace.start(ctx, spanTokenize)
	defer func() { span.end(err) }()
	leave, err := r.encoders.enter(ctx, q.guest.id, len(f.raw["prompt"])+len(f.raw["messages"]))
	if err != nil {
		return nil, err
	}
	defer leave()
	b := bounds{r.promptLimit(to), q.maxTokens}
	if q.keep != 0 {
		b.limit = maxTokenized
	}
	if q.chat {
		out = make([]prompt, 1)
		out[0].ids, err = readChat(ctx, f, q.card, r.cfg.Now(), b)
	} else {
		out, err = readPrompts(ctx, f, q.card, max(1, maxChoices/q.bestOf), b)
	}
	for i := range out {
		out[i] = q.cut(out[i], to.alone, q.maxTokens)
	}
	if err == nil {
		err = f.fault
	}
	r.trace.note(ctx, func(rec *record) {
		for _, p := range out {
			rec.prompt += len(p.ids)
		}
	})
	return out, err
}
