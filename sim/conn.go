package sim

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"
)

// conn is one end of a connection. Writes never wait: what was written is on its way, however much it is. A write that
// waited could do so under a lock, and virtual time stands still while anybody waits for a lock.
type conn struct {
	net           *network
	local, remote addr
	in, out       *direction
}

// direction is what flows one way.
type direction struct {
	net      *network
	from, to string // hosts

	mu       sync.Mutex
	rng      *rand.Rand
	packets  []packet
	last     time.Time // when the newest packet arrives
	ended    bool      // by the writer, after the last packet
	broken   error     // for both ends, at once
	closed   bool      // by the reader
	deadline time.Time // of reads
	changed  chan struct{}
}

type packet struct {
	at   time.Time
	data []byte // empty: the end
}

// delay is mostly a part of the usual one, and now and then ten times as much.
func (d *direction) delay() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.delayLocked()
}

func (d *direction) delayLocked() time.Duration {
	most := d.net.slower
	if d.rng.IntN(32) == 0 {
		most *= 10
	}
	return most/8 + time.Duration(d.rng.Int64N(int64(most)))
}

// change wakes the reader.
func (d *direction) change() {
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *direction) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.broken == nil {
		d.broken = err
		d.change()
	}
}

func (d *direction) send(data []byte, end bool) error {
	until := d.net.heldUntil(d.from, d.to)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.broken != nil:
		return d.broken
	case d.ended:
		return net.ErrClosed
	}
	at := time.Now().Add(d.delayLocked())
	for _, least := range []time.Time{until, d.last} {
		if at.Before(least) {
			at = least
		}
	}
	d.last, d.ended = at, end
	d.packets = append(d.packets, packet{at, append([]byte(nil), data...)})
	d.change()
	return nil
}

// take is what has arrived, or when it is worth to look again (never, if zero) unless changed is closed before.
func (d *direction) take(p []byte) (n int, err error, again time.Time, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	switch {
	case d.closed:
		return 0, net.ErrClosed, again, nil
	case d.broken != nil:
		return 0, d.broken, again, nil
	case !d.deadline.IsZero() && !now.Before(d.deadline):
		return 0, os.ErrDeadlineExceeded, again, nil
	}
	again = d.deadline
	if len(d.packets) == 0 {
		return 0, nil, again, d.changed
	}
	first := &d.packets[0]
	if first.at.After(now) {
		if again.IsZero() || first.at.Before(again) {
			again = first.at
		}
		return 0, nil, again, d.changed
	}
	if len(first.data) == 0 {
		return 0, io.EOF, again, nil
	}
	n = copy(p, first.data)
	if first.data = first.data[n:]; len(first.data) == 0 {
		d.packets = d.packets[1:]
	}
	return n, nil, again, nil
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, err, again, changed := c.in.take(p)
		if n > 0 || err != nil {
			return n, err
		}
		if again.IsZero() {
			<-changed
			continue
		}
		t := time.NewTimer(time.Until(again))
		select {
		case <-changed:
		case <-t.C:
		}
		t.Stop()
	}
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := c.out.send(p, false); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close implements net.Conn: the other end reads what was written, then the end.
func (c *conn) Close() error {
	c.net.forget(c)
	c.in.mu.Lock()
	if !c.in.closed {
		c.in.closed = true
		c.in.change()
	}
	c.in.mu.Unlock()
	_ = c.out.send(nil, true) // it has ended, or is broken, already
	return nil
}

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.deadline = t
	c.in.change()
	return nil
}

// SetWriteDeadline implements net.Conn: no write waits.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
