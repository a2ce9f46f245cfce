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
	// bodyRate is the bytes a second that a client must bring on, else its deadline comes nearer.
	bodyRate = 16 << 10
	// firstBody is the room that a body begins with; it grows by bodyGrowth.
	firstBody  = 16 << 10
	bodyGrowth = 4
)

// readBody reads a request's JSON object. Its fields have room until they are done with.
func (r *Router) readBody(w http.ResponseWriter, req *http.Request) (*fields, error) {
	if err := isJSON(req); err != nil {
		return nil, err
	}
	in := &intake{r: r, w: w, req: req, control: http.NewResponseController(w), bodies: r.bodies}
	if g, ok := req.Context().Value(guestKey{}).(*guest); ok {
		in.tenant, in.shares = g.id, g.tenant != nil
	} else {
		in.bodies = r.adminBodies
	}
	data, err := in.read()
	done := sync.OnceFunc(in.giveBack)
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
	due     time.Time

	bodies *bodies
	tenant string
	shares bool  // the room with other tenants
	taken  int64 // of the room for that many bytes
}

// read takes room as the body comes. The deadline that a failure leaves behind ends what net/http would still read; that
// of a whole body is lifted, or it would cut the wait for the answer off.
func (in *intake) read() ([]byte, error) {
	limit := in.r.cfg.MaxBodyBytes
	known := in.req.ContentLength
	if known > limit {
		return nil, bodyTooBig(limit)
	}
	most := limit + 1
	if known >= 0 {
		most = known + 1 // the end is read without growing
	}
	body := http.MaxBytesReader(in.w, in.req.Body, limit)
	in.due = time.Now().Add(in.r.cfg.ReadTimeout)
	data, err := in.grow(nil, min(firstBody, most))
	for err == nil {
		if len(data) == cap(data) {
			if data, err = in.grow(data, min(bodyGrowth*int64(cap(data)), most)); err != nil {
				break
			}
		}
		if err = setReadDeadline(in.control, in.due); err != nil {
			break
		}
		var n int
		n, err = body.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		in.received(n)
	}
	if errors.Is(err, io.EOF) {
		return data, setReadDeadline(in.control, time.Time{})
	}
	return nil, bodyFault(err)
}

// received moves the deadline by what came, at most to the whole time from now: a client that stops has that long at
// most, however much it brought before, and one that goes on at bodyRate is never cut off.
func (in *intake) received(n int) {
	now := time.Now()
	in.due = in.due.Add(time.Duration(n) * (time.Second / bodyRate))
	if latest := now.Add(in.r.cfg.ReadTimeout); in.due.After(latest) {
		in.due = latest
	}
}

// grow moves data to a larger buffer, which there must be room for.
func (in *intake) grow(data []byte, size int64) ([]byte, error) {
	size = max(size, int64(len(data))+1)
	if to := in.bodies.of(size); to != in.bodies.of(in.taken) {
		if err := to.take(in.tenant, in.shares, size); err != nil {
			return nil, err
		}
		in.giveBack()
	} else if err := to.take(in.tenant, in.shares, size-in.taken); err != nil {
		return nil, err
	}
	in.taken = size
	return append(make([]byte, 0, size), data...), nil
}

func (in *intake) giveBack() {
	in.bodies.of(in.taken).give(in.tenant, in.taken)
	in.taken = 0
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
