package router

import (
	"errors"
	"testing"
	"time"
)

func isFirst(t *ticket) bool {
	select {
	case <-t.first:
		return true
	default:
		return false
	}
}

func TestQueueOrder(t *testing.T) { // R4
	q := newQueue(10, 1000)
	join := func(lane string) *ticket {
		x, err := q.join(lane, 10, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	a, b, other := join("m"), join("m"), join("n")
	if !isFirst(a) || isFirst(b) || !isFirst(other) {
		t.Error("R4: the first of each lane, and only it")
	}
	q.leave(a)
	q.leave(a)
	if !isFirst(b) {
		t.Error("R4: the next one was not called")
	}
	q.rejoin(a)
	c := join("m")
	q.leave(b)
	if !isFirst(a) || isFirst(c) {
		t.Error("R4: who comes back has its old place")
	}
	q.leave(a)
	q.leave(other)
	if n, tokens := q.size(); n != 1 || tokens != 10 || !isFirst(c) {
		t.Errorf("%d requests, %d tokens", n, tokens)
	}
	q.leave(c)
	if n, tokens := q.size(); n != 0 || tokens != 0 || len(q.lanes) != 0 {
		t.Errorf("%d requests, %d tokens, %d lanes", n, tokens, len(q.lanes))
	}
}

func TestQueueBounds(t *testing.T) {
	q := newQueue(2, 100)
	now := time.Unix(100, 0)
	big, err := q.join("m", 500, now)
	if err != nil {
		t.Errorf("a long prompt alone: %v", err)
	}
	var full *Error
	_, err = q.join("m", 1, now.Add(7*time.Second))
	if !errors.As(err, &full) || full.ID() != "QUE-001" || full.retryAfter() != "7" {
		t.Errorf("%v", err)
	}
	q.leave(big)
	for range 2 {
		if _, err := q.join("m", 1, now); err != nil {
			t.Error(err)
		}
	}
	if _, err := q.join("n", 1, now); !errors.As(err, &full) || full.Status() != 429 {
		t.Errorf("a third request: %v", err)
	}
}
