package router

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// bodyRate is the bytes a second that a client must bring on top of the time that it has anyway.
	bodyRate = 4 << 10
	// firstBody is the room that a body of unknown length begins with.
	firstBody = 16 << 10
)

// room bounds the bytes of the bodies that are being read or parsed. What was parsed is bounded by the queue.
type room struct {
	mu          sync.Mutex
	used, limit int64
}

// take is without waiting: whoever waited with half a body would hold what another one needs.
func (s *room) take(bytes int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used+bytes > s.limit {
		return &Error{kind: kindQueueFull, RetryAfter: time.Second, Numbers: map[string]any{
			"body_bytes": s.used, "body_bytes_limit": s.limit, "need": bytes,
		}, Message: fmt.Sprintf("too many large requests are being read: %d of %d bytes; try again later", s.used, s.limit)}
	}
	s.used += bytes
	return nil
}

func (s *room) give(bytes int64) {
	s.mu.Lock()
	s.used -= bytes
	s.mu.Unlock()
}

// readBody reads a request's JSON object. Its fields have room until they are done with.
func (r *Router) readBody(w http.ResponseWriter, req *http.Request) (*fields, error) {
	in := &intake{r: r, w: w, req: req, control: http.NewResponseController(w), began: time.Now()}
	data, err := in.read()
	done := sync.OnceFunc(func() { r.bodies.give(in.taken) })
	if err != nil {
		done()
		w.Header().Set("Connection", "close") // nobody waits for the rest of the body
		return nil, err
	}
	raw, err := parseObject(data)
	if err != nil {
		done()
		return nil, err
	}
	return &fields{raw: raw, done: done}, nil
}

// intake is one body on its way in.
type intake struct {
	r       *Router
	w       http.ResponseWriter
	req     *http.Request
	control *http.ResponseController
	began   time.Time
	taken   int64 // room
}

// read takes room as the body comes. The deadline that a failure leaves behind ends what net/http would still read; that
// of a whole body is lifted, or it would cut the wait for the answer off.
func (in *intake) read() ([]byte, error) {
	limit := in.r.cfg.MaxBodyBytes
	if in.req.ContentLength > limit {
		return nil, bodyTooBig(limit)
	}
	body := http.MaxBytesReader(in.w, in.req.Body, limit)
	size := int64(firstBody)
	if known := in.req.ContentLength; known >= 0 {
		size = min(size, known+1) // +1: the end is read without growing
	}
	data, err := in.grow(nil, size)
	for err == nil {
		if len(data) == cap(data) {
			size = min(2*int64(cap(data)), limit+1)
			if known := in.req.ContentLength; known >= 0 {
				size = min(size, known+1)
			}
			if data, err = in.grow(data, size); err != nil {
				break
			}
		}
		if err = in.deadline(len(data)); err != nil {
			break
		}
		var n int
		n, err = body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
	}
	if errors.Is(err, io.EOF) {
		return data, setReadDeadline(in.control, time.Time{})
	}
	return nil, bodyFault(err)
}

// grow moves data to a larger buffer, which there must be room for.
func (in *intake) grow(data []byte, size int64) ([]byte, error) {
	size = max(size, int64(len(data))+1)
	if err := in.r.bodies.take(size - in.taken); err != nil {
		return nil, err
	}
	in.taken = size
	return append(make([]byte, 0, size), data...), nil
}

func (in *intake) deadline(received int) error {
	due := in.r.cfg.ReadTimeout + time.Duration(received)*(time.Second/bodyRate)
	return setReadDeadline(in.control, in.began.Add(due))
}

// setReadDeadline does nothing to connections without deadlines: they have their own way to end.
func setReadDeadline(c *http.ResponseController, at time.Time) error {
	if err := c.SetReadDeadline(at); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("%w: %w", errGone, err)
	}
	return nil
}

func bodyTooBig(limit int64) *Error {
	return &Error{kind: kindBodyTooBig, Numbers: map[string]any{"limit_bytes": limit},
		Message: "the body is larger than this router takes"}
}

// bodyFault says what a failed read means: the client left, or what it sends is no body. A body that ends too early is
// answered: the client may have left, or only closed its sending side.
func bodyFault(err error) error {
	var own *Error
	var tooBig *http.MaxBytesError
	var network net.Error
	var broken *net.OpError
	switch {
	case errors.As(err, &own), errors.Is(err, errGone):
		return err
	case errors.As(err, &tooBig):
		return bodyTooBig(tooBig.Limit)
	case errors.As(err, &network) && network.Timeout():
		return &Error{kind: kindSlowBody, Message: "the body did not come in time"}
	case errors.As(err, &broken), errors.Is(err, net.ErrClosed):
		return fmt.Errorf("%w: %w", errGone, err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return invalid("", "the body ends before its length")
	}
	return invalid("", "the body cannot be read: %v", err)
}
