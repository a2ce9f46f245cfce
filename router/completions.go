package router

import (
	"context"
	"errors"
	"net/http"
	"strings"
)

// completions serves /v1/completions and /v1/chat/completions.
func (r *Router) completions(w http.ResponseWriter, req *http.Request) error {
	ctx := req.Context()
	f, err := r.readBody(w, req)
	if err != nil {
		return err
	}
	defer f.done() // for a panic
	q, err := r.prepare(ctx, f, strings.HasSuffix(req.URL.Path, "/chat/completions"))
	f.done()
	if err != nil {
		return err
	}
	created := r.cfg.Now().Unix()
	if !q.stream {
		return r.generate(ctx, q, &body{w: w, timeout: r.cfg.WriteTimeout, q: q, created: created})
	}
	out := &events{
		w: w, control: http.NewResponseController(w), timeout: r.cfg.WriteTimeout, q: q, created: created,
		chunked: req.ProtoMajor == 1 && req.ProtoMinor == 1,
	}
	err = r.generate(ctx, q, out)
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

// prepare reads a request until it is known what to run, and that it can run at all.
func (r *Router) prepare(ctx context.Context, f *fields, chat bool) (*request, error) {
	name, ok := f.text("model")
	if !ok {
		f.fail(invalid("model", "model is missing: GET /v1/models lists those that exist"))
	}
	if f.fault != nil {
		return nil, f.fault
	}
	r.trace.note(ctx, func(rec *record) { rec.model = name })
	k, err := r.lookup(name)
	if err != nil {
		return nil, err
	}
	q := &request{id: requestID(ctx), chat: chat, model: name, card: k, params: readParams(f, chat, k.tok.Len())}
	if f.fault != nil {
		return nil, f.fault
	}
	if err := r.queue.crowded(r.cfg.Now()); err != nil {
		return nil, err
	}
	to := r.reach(name, k)
	_, span := r.trace.start(ctx, spanTokenize)
	if chat {
		q.prompt, err = readChat(f, k)
	} else {
		q.prompt, err = readPrompt(f, k, r.promptLimit(to), q.maxTokens)
	}
	span.end(err)
	if err == nil {
		err = f.fault
	}
	if err != nil {
		return nil, err
	}
	r.trace.note(ctx, func(rec *record) { rec.prompt = len(q.prompt) })
	return q, q.bound(to)
}
