package router

import (
	"cmp"
	"context"
	"net/http"

	"github.com/berthd/berth/model/tokenizer"
)

// models serves GET /v1/models.
func (r *Router) models(w http.ResponseWriter, req *http.Request) error {
	list := []any{}
	for _, m := range r.served(guestOf(req.Context())) {
		list = append(list, r.describe(m))
	}
	return gone(writeJSON(w, r.cfg.WriteTimeout, http.StatusOK, map[string]any{"object": "list", "data": list}))
}

func (r *Router) modelByID(w http.ResponseWriter, req *http.Request) error {
	id, g := req.PathValue("id"), guestOf(req.Context())
	for _, m := range r.served(g) {
		if m.name == id {
			return gone(writeJSON(w, r.cfg.WriteTimeout, http.StatusOK, r.describe(m)))
		}
	}
	if !g.may(id) && knownModel(r.cfg.Ledger.View(), id) {
		return forbiddenModel(id)
	}
	return modelNotFound(id)
}

func (r *Router) describe(m servedModel) map[string]any {
	return map[string]any{
		"id": m.name, "object": "model", "created": r.started, "owned_by": "berth", "root": m.root, "parent": nil,
		"max_model_len": m.length,
	}
}

// modelOf is the model that a request to tokenize names; it may leave the name out if only one model is served.
func (r *Router) modelOf(ctx context.Context, f *fields) (string, *card, error) {
	g := guestOf(ctx)
	name, ok := f.text("model")
	if f.fault != nil {
		return "", nil, f.fault
	}
	if !ok {
		served := r.served(g)
		for _, m := range served {
			if m.root != served[0].root {
				return "", nil, invalid("model", "model is missing, and there is more than one: GET /v1/models lists them")
			}
		}
		if len(served) == 0 {
			return "", nil, noWorker("", "none is attached")
		}
		name = served[0].name
	}
	k, err := r.lookup(ctx, g, name)
	return name, k, err
}

// tokenize serves POST /tokenize, for a prompt or for messages, in vLLM's form.
func (r *Router) tokenize(w http.ResponseWriter, req *http.Request) error {
	f, err := r.readBody(w, req)
	if err != nil {
		return err
	}
	defer f.done()
	name, k, err := r.modelOf(req.Context(), f)
	if err != nil {
		return err
	}
	pieces := f.boolean("return_token_strs", false)
	tokens, err := r.tokens(req.Context(), f, k)
	if err != nil {
		return err
	}
	answer := map[string]any{
		"count": len(tokens), "max_model_len": r.reach(name, k).length, "tokens": tokens, "token_strs": nil,
	}
	if pieces {
		strs := make([]string, len(tokens))
		for i, id := range tokens {
			strs[i] = k.tok.Spec().Tokens[id]
		}
		answer["token_strs"] = strs
	}
	return gone(writeJSON(w, r.cfg.WriteTimeout, http.StatusOK, answer))
}

// tokens are the ids of a request's prompt or messages.
func (r *Router) tokens(ctx context.Context, f *fields, k *card) (tokens []int32, err error) {
	leave, err := r.encoders.enter(ctx, guestOf(ctx).id, len(f.raw["prompt"])+len(f.raw["messages"]))
	if err != nil {
		return nil, err
	}
	defer leave()
	b, o := bounds{limit: maxTokenized}, tokenizer.Options{Control: true, Begin: f.boolean("add_special_tokens", true)}
	text, ok := f.text("prompt")
	if _, chat := f.get("messages"); chat {
		text, o.Plain, err = renderChat(f, k, r.cfg.Now(), b)
	} else if !ok {
		err = invalid("prompt", "give a prompt or messages")
	}
	if err = cmp.Or(err, f.fault); err == nil {
		tokens, err = k.encode(ctx, text, o, b)
	}
	if tokens == nil {
		tokens = []int32{}
	}
	return tokens, err
}

// maxTokenized is how many ids one request may ask for, or the text of.
const maxTokenized = 1 << 20

// detokenize serves POST /detokenize.
func (r *Router) detokenize(w http.ResponseWriter, req *http.Request) error {
	f, err := r.readBody(w, req)
	if err != nil {
		return err
	}
	defer f.done()
	_, k, err := r.modelOf(req.Context(), f)
	if err != nil {
		return err
	}
	raw, ok := f.get("tokens")
	if !ok {
		return invalid("tokens", "tokens is missing: give a list of token ids")
	}
	tokens, isList, many, err := ids(raw, "tokens", k.tok.Len(), maxTokenized)
	switch {
	case err == nil && !isList:
		err = invalid("tokens", "tokens must be a list of token ids")
	case many > 0:
		err = invalid("tokens", "tokens has %d ids, at most %d are taken", many, maxTokenized)
	}
	if err != nil {
		return err
	}
	return gone(writeJSON(w, r.cfg.WriteTimeout, http.StatusOK, map[string]any{"prompt": k.tok.Decode(tokens, true)}))
}
