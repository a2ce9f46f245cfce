package router

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"
)

// errGone says that the client has left: nobody is there to be answered.
var errGone = errors.New("the client has left")

// kind is a row of the table of errors.
type kind struct {
	id, code string
	status   int
	typ      string // OpenAI's
}

const (
	typeInvalid = "invalid_request_error"
	typeRate    = "rate_limit_error"
	typeServer  = "server_error"
)

// The table of errors; docs/errors has a page for each.
var (
	kindCapacity    = kind{"KV-001", "kv_capacity_exceeded", http.StatusBadRequest, typeInvalid}
	kindBusy        = kind{"KV-002", "kv_capacity_busy", http.StatusServiceUnavailable, typeServer}
	kindContext     = kind{"CTX-001", "context_length_exceeded", http.StatusBadRequest, typeInvalid}
	kindKey         = kind{"TEN-001", "invalid_api_key", http.StatusUnauthorized, typeInvalid}
	kindRate        = kind{"TEN-002", "rate_limit_exceeded", http.StatusTooManyRequests, typeRate}
	kindCap         = kind{"TEN-003", "tenant_kv_cap", http.StatusTooManyRequests, typeRate}
	kindForbidden   = kind{"TEN-004", "forbidden_model", http.StatusForbidden, typeInvalid}
	kindQueueFull   = kind{"QUE-001", "queue_full", http.StatusTooManyRequests, typeRate}
	kindNoWorker    = kind{"WRK-001", "no_worker", http.StatusServiceUnavailable, typeServer}
	kindWorkerLost  = kind{"WRK-002", "worker_lost", http.StatusBadGateway, typeServer}
	kindNoQuorum    = kind{"LDG-001", "no_quorum", http.StatusServiceUnavailable, typeServer}
	kindInvalid     = kind{"REQ-001", "invalid_request", http.StatusBadRequest, typeInvalid}
	kindUnsupported = kind{"REQ-002", "unsupported", http.StatusBadRequest, typeInvalid}
	kindBodyTooBig  = kind{"REQ-003", "body_too_large", http.StatusRequestEntityTooLarge, typeInvalid}
	kindSlowBody    = kind{"REQ-001", "request_timeout", http.StatusRequestTimeout, typeInvalid}
	kindModel       = kind{"MDL-001", "model_not_found", http.StatusNotFound, typeInvalid}
	kindNoPath      = kind{"REQ-001", "not_found", http.StatusNotFound, typeInvalid}
	kindOrigin      = kind{"REQ-004", "forbidden_origin", http.StatusForbidden, typeInvalid}
	kindMediaType   = kind{"REQ-005", "unsupported_media_type", http.StatusUnsupportedMediaType, typeInvalid}
	kindAdmin       = kind{"ADM-001", "admin_token_needed", http.StatusUnauthorized, typeInvalid}
	kindDraining    = kind{"RTR-001", "shutting_down", http.StatusServiceUnavailable, typeServer}
	kindNoMethod    = kind{"REQ-001", "method_not_allowed", http.StatusMethodNotAllowed, typeInvalid}
	kindInternal    = kind{"INT-001", "internal_error", http.StatusInternalServerError, typeServer}
)

// errorKinds are all of them: each has a series from the start.
var errorKinds = []kind{
	kindCapacity, kindBusy, kindContext, kindKey, kindRate, kindCap, kindForbidden, kindQueueFull, kindNoWorker, kindWorkerLost,
	kindNoQuorum, kindInvalid, kindUnsupported, kindBodyTooBig, kindSlowBody, kindModel, kindNoPath, kindOrigin, kindMediaType,
	kindAdmin, kindDraining, kindNoMethod, kindInternal,
}

// Error is a refusal or failure as a client sees it.
type Error struct {
	kind       kind
	Message    string
	Param      string         // field at fault, "" if none
	Numbers    map[string]any // what the error's page says it carries
	RetryAfter time.Duration  // 0: no header
}

// Error implements error.
func (e *Error) Error() string { return e.kind.id + ": " + e.Message }

// ID is the error's name in the documentation, such as KV-001.
func (e *Error) ID() string { return e.kind.id }

// Code is the error's name in metrics and bodies, such as kv_capacity_exceeded.
func (e *Error) Code() string { return e.kind.code }

// Status is the HTTP status.
func (e *Error) Status() int { return e.kind.status }

// body is the error's JSON form.
func (e *Error) body() map[string]any {
	berth := map[string]any{"id": e.kind.id}
	for k, v := range e.Numbers {
		berth[k] = v
	}
	var param any
	if e.Param != "" {
		param = e.Param
	}
	return map[string]any{"error": map[string]any{
		"message": e.Message, "type": e.kind.typ, "param": param, "code": e.kind.code, "berth": berth,
	}}
}

// retryAfter is the header's value: whole seconds from 1 to 60, "" for none.
func (e *Error) retryAfter() string {
	if e.RetryAfter <= 0 {
		return ""
	}
	return strconv.Itoa(min(60, max(1, int(math.Ceil(e.RetryAfter.Seconds())))))
}

// asError is err as a client may see it; what has no row in the table says nothing about itself.
func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return &Error{kind: kindInternal, Message: "the router failed; its log has the request id and the reason"}
}

func invalid(param, format string, args ...any) *Error {
	return &Error{kind: kindInvalid, Param: param, Message: fmt.Sprintf(format, args...)}
}

func unsupported(param string) *Error {
	return &Error{kind: kindUnsupported, Param: param,
		Message: fmt.Sprintf("%s is not supported by this version of Berth: leave it out", param)}
}

func modelNotFound(name string) *Error {
	return &Error{kind: kindModel, Param: "model",
		Message: fmt.Sprintf("the model %q does not exist: GET /v1/models lists those that do", name)}
}

// invalidKey is the same whether there is no key or a wrong one.
func invalidKey() *Error {
	return &Error{kind: kindKey, Message: "a valid API key is needed, as in Authorization: Bearer KEY"}
}

func forbiddenModel(name string) *Error {
	return &Error{kind: kindForbidden, Param: "model",
		Message: fmt.Sprintf("this API key may not use the model %q: GET /v1/models lists those that it may", name)}
}

func noWorker(model, why string) *Error {
	return &Error{kind: kindNoWorker, Param: "model", RetryAfter: time.Second,
		Message: fmt.Sprintf("no worker is ready for the model %q: %s", model, why)}
}

func noQuorum(why error) *Error {
	return &Error{kind: kindNoQuorum, RetryAfter: 2 * time.Second,
		Message: fmt.Sprintf("nothing can be admitted now: %v", why)}
}

func workerLost(worker, why string) *Error {
	return &Error{kind: kindWorkerLost, Numbers: map[string]any{"worker": worker},
		Message: "the worker that ran the request was lost: " + why}
}

func workerFailed(worker string) *Error {
	return &Error{kind: kindInternal, Numbers: map[string]any{"worker": worker},
		Message: "the worker failed at the request; its log has the request id and the reason"}
}
