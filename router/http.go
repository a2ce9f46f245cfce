package router

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net/http"
	"path"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// Handler serves clients: the OpenAI API, health, and metrics.
func (r *Router) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/completions", r.traced("POST /v1/completions", "text_completion", r.post(r.completions)))
	mux.HandleFunc("/v1/chat/completions", r.traced("POST /v1/chat/completions", "chat", r.post(r.completions)))
	mux.HandleFunc("/v1/models", r.get(r.models))
	mux.HandleFunc("/v1/models/{$}", r.get(r.models))
	mux.HandleFunc("/v1/models/{id...}", r.get(r.modelByID))
	mux.HandleFunc("/tokenize", r.post(r.tokenize))
	mux.HandleFunc("/detokenize", r.post(r.detokenize))
	for _, at := range []string{"/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"} {
		mux.HandleFunc(at, r.unbuilt)
	}
	mux.HandleFunc("/healthz", r.get(r.healthz))
	mux.HandleFunc("/health", r.get(r.healthz)) // as vLLM, SGLang and llama.cpp have it
	mux.HandleFunc("/ping", r.ping)             // as SageMaker has it
	mux.HandleFunc("/version", r.get(r.version))
	mux.HandleFunc("/readyz", r.get(r.readyz))
	mux.HandleFunc("/readyz/replica", r.get(r.replicaReadyz))
	if r.cfg.Metrics != nil {
		mux.Handle("/metrics", r.cfg.Metrics)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, req *http.Request) {
		r.refuse(w, req, &Error{kind: kindNoPath, Message: "there is nothing at " + req.URL.Path})
	})
	closed := func() bool { return r.closed(r.cfg.Ledger.View()) }
	return r.guarded(r.fromPages(closed, r.exact(r.keyed(mux))))
}

// exact refuses paths that ServeMux would redirect to a cleaner form of theirs: no API has them.
func (r *Router) exact(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked := req.URL.EscapedPath()
		if clean := path.Clean("/" + asked); asked != clean && asked != clean+"/" {
			r.refuse(w, req, &Error{kind: kindNoPath, Message: "there is nothing at " + req.URL.Path})
			return
		}
		next.ServeHTTP(w, req)
	})
}

// requestIDKey is where a request's id is in its context.
type requestIDKey struct{}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

var saneID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:\-]{0,127}$`)

// guarded gives every request its id, and turns a panic into an error.
func (r *Router) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		id := req.Header.Get("X-Request-Id")
		if !saneID.MatchString(id) {
			id = newID()
		}
		w.Header().Set("X-Request-Id", id)
		if req.Body != nil && req.Body != http.NoBody { // of which an error may be the answer, unread
			if err := setReadDeadline(http.NewResponseController(w), time.Now().Add(r.cfg.ReadTimeout)); err != nil {
				panic(http.ErrAbortHandler)
			}
		}
		req = req.WithContext(context.WithValue(req.Context(), requestIDKey{}, id))
		sw := &statusWriter{ResponseWriter: w}
		defer func() {
			fault := recover()
			if fault == nil {
				return
			}
			if fault == http.ErrAbortHandler {
				panic(fault)
			}
			r.cfg.Log.Error("a handler panicked", "request_id", id, "panic", fault, "stack", string(debug.Stack()))
			if sw.status != 0 {
				panic(http.ErrAbortHandler) // the answer has begun: it must not look whole
			}
			r.refuse(w, req, asError(errors.New("panic")))
		}()
		next.ServeHTTP(sw, req)
	})
}

func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// failing is a handler that may fail before it has answered.
type failing func(w http.ResponseWriter, req *http.Request) error

func (r *Router) get(h failing) http.HandlerFunc { return r.only(http.MethodGet, h) }

func (r *Router) post(h failing) http.HandlerFunc { return r.only(http.MethodPost, h) }

func (r *Router) only(method string, h failing) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if req.Method != method && (method != http.MethodGet || req.Method != http.MethodHead) {
			w.Header().Set("Allow", method)
			r.refuse(w, req, &Error{kind: kindNoMethod, Message: req.URL.Path + " takes " + method})
			return
		}
		r.failing(h)(w, req)
	}
}

// failing answers the error of a handler.
func (r *Router) failing(h failing) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		if err := h(w, req); err != nil {
			r.answerError(w, req, err)
		}
	}
}

// answerError answers what a handler could not, unless nobody is there any more.
func (r *Router) answerError(w http.ResponseWriter, req *http.Request, err error) {
	r.trace.note(req.Context(), func(rec *record) { rec.fault = err })
	if errors.Is(err, errGone) {
		// A client that only closed its sending side after a whole request looks like one that left: net/http ends the
		// request's context at either. It gets no answer, but never an end that looks like one.
		panic(http.ErrAbortHandler)
	}
	e := asError(err)
	if e.kind == kindInternal {
		r.cfg.Log.Error("request failed", "request_id", requestID(req.Context()), "error", err.Error())
	}
	r.refuse(w, req, e)
}

func (r *Router) refuse(w http.ResponseWriter, req *http.Request, e *Error) {
	r.trace.refused(e)
	if after := e.retryAfter(); after != "" {
		w.Header().Set("Retry-After", after)
	}
	if e.Status() == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	if err := writeJSON(w, r.cfg.WriteTimeout, e.Status(), errorBody(req, e)); err != nil {
		r.cfg.Log.Debug("error not delivered", "request_id", requestID(req.Context()), "error", err.Error())
	}
}

func (r *Router) healthz(w http.ResponseWriter, _ *http.Request) error {
	return gone(writeJSON(w, r.cfg.WriteTimeout, http.StatusOK, map[string]string{"status": "ok"}))
}

// ping takes any method.
func (r *Router) ping(w http.ResponseWriter, req *http.Request) { r.failing(r.healthz)(w, req) }

func (r *Router) version(w http.ResponseWriter, _ *http.Request) error {
	return gone(writeJSON(w, r.cfg.WriteTimeout, http.StatusOK, map[string]string{"version": r.cfg.Version}))
}

// replicaReadyz says whether the router does its part of the cluster's work, even if there are no workers.
func (r *Router) replicaReadyz(w http.ResponseWriter, _ *http.Request) error {
	return r.sayReady(w, cmp.Or(r.drain.ready(), r.cfg.Ledger.Ready()))
}

// readyz says whether work can be taken: there is a quorum, and a worker that is placed on.
func (r *Router) readyz(w http.ResponseWriter, _ *http.Request) error {
	return r.sayReady(w, r.ready())
}

func (r *Router) sayReady(w http.ResponseWriter, err error) error {
	if err != nil {
		return gone(writeJSON(w, r.cfg.WriteTimeout, http.StatusServiceUnavailable,
			map[string]string{"status": "not ready", "reason": err.Error()}))
	}
	return gone(writeJSON(w, r.cfg.WriteTimeout, http.StatusOK, map[string]string{"status": "ready"}))
}

func (r *Router) ready() error {
	if err := r.drain.ready(); err != nil {
		return err
	}
	if err := r.cfg.Ledger.Ready(); err != nil {
		return err
	}
	why := "no worker is attached"
	members := r.members.snapshot()
	for _, w := range r.cfg.Ledger.View().Workers {
		m, attached := members[w.Name]
		if !attached {
			continue
		}
		state, reason := memberState(w, &m)
		if state == stateReady {
			return nil
		}
		why = "worker " + w.Name + " is " + state
		if reason != "" {
			why += ": " + reason
		}
	}
	return errors.New(why)
}

// unbuilt refuses endpoints that this version does not have.
func (r *Router) unbuilt(w http.ResponseWriter, req *http.Request) {
	r.refuse(w, req, &Error{kind: kindUnsupported, Message: req.URL.Path + " is not supported by this version of Berth"})
}

// errorBody is the form that a path's API has for errors.
func errorBody(req *http.Request, e *Error) map[string]any {
	if !strings.HasPrefix(req.URL.Path, "/v1/messages") {
		return e.body()
	}
	return map[string]any{"type": "error", "request_id": requestID(req.Context()), "error": map[string]any{
		"type": e.kind.typ, "message": e.Message, "berth": map[string]any{"id": e.kind.id},
	}}
}
