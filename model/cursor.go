package model

import (
	"encoding/binary"
	"fmt"
)

// cursor reads a GGUF header front to back. Every length is compared with the bytes left before it is used, so a file
// can't make it allocate or walk more than the file has. The first fault sticks: later reads give zero.
type cursor struct {
	file string
	b    []byte
	at   int
	err  *WeightsError
}

func (c *cursor) fail(at int, format string, args ...any) {
	if c.err == nil {
		c.err = &WeightsError{File: c.file, Offset: int64(at), What: fmt.Sprintf(format, args...)}
	}
}

// left is the bytes not yet read.
func (c *cursor) left() int { return len(c.b) - c.at }

// take is the next n bytes, nil after a fault.
func (c *cursor) take(n int, what string) []byte {
	if c.err != nil {
		return nil
	}
	if n < 0 || n > c.left() {
		c.fail(c.at, "%s needs %d bytes, the file has %d left", what, n, c.left())
		return nil
	}
	c.at += n
	return c.b[c.at-n : c.at]
}

func (c *cursor) u32(what string) uint32 {
	if b := c.take(4, what); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64(what string) uint64 {
	if b := c.take(8, what); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// count is a 64-bit number of items of at least size bytes each, so that count × size fits what is left.
func (c *cursor) count(size int, what string) int {
	at := c.at
	n := c.u64(what)
	if c.err == nil && n > uint64(c.left()/size) {
		c.fail(at, "%s %d of at least %d bytes each, the file has %d left", what, n, size, c.left())
	}
	if c.err != nil {
		return 0
	}
	return int(n)
}

// str is a length and that many bytes, copied.
func (c *cursor) str(what string) string { return string(c.take(c.count(1, what+" length"), what)) }
