package consensus

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// raftLog gives raft a logger whose lines end up in log.
func raftLog(log *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Off, Output: io.Discard})
	l.RegisterSink(&sink{log: log, now: time.Now, seen: map[string]*repeats{}})
	return l
}

// sink is one slog record a line of raft. A line that comes again and again, as while a peer is down, is passed on when it
// first comes and then now and then, with how often it came meanwhile.
type sink struct {
	log *slog.Logger
	now func() time.Time

	mu   sync.Mutex
	seen map[string]*repeats // by message and peer
}

// repeats is what is known of a line.
type repeats struct {
	due   time.Time // before which it is counted only
	pause time.Duration
	count int
}

const (
	firstQuiet = 10 * time.Second
	mostQuiet  = 10 * time.Minute
	// mostLines bounds how many lines are remembered.
	mostLines = 256
)

// Accept implements hclog.SinkAdapter.
func (s *sink) Accept(name string, level hclog.Level, message string, args ...any) {
	at := slog.LevelDebug
	switch level {
	case hclog.Info:
		at = slog.LevelInfo
	case hclog.Warn:
		at = slog.LevelWarn
	case hclog.Error:
		at = slog.LevelError
	}
	key := message
	for i, a := range args {
		switch a := a.(type) {
		case hclog.Format:
			if len(a) > 0 {
				args[i] = fmt.Sprintf(a[0].(string), a[1:]...)
			}
		case time.Duration:
			args[i] = a.String()
		}
		if i > 0 && args[i-1] == "peer" {
			key = fmt.Sprint(message, " ", args[i])
		}
	}
	count, pass := s.repeated(key, at)
	if !pass {
		return
	}
	if count > 0 {
		args = append(args, slog.Int("repeated", count))
	}
	s.log.Log(context.Background(), at, message, append(args, slog.String("component", name))...)
}

// repeated says whether a line is passed on, and how often it was not since the last time.
func (s *sink) repeated(key string, at slog.Level) (count int, pass bool) {
	if at < slog.LevelWarn {
		return 0, true // a change of state
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	r := s.seen[key]
	if r == nil || now.Sub(r.due) > mostQuiet { // new, or long over
		if len(s.seen) >= mostLines {
			clear(s.seen)
		}
		s.seen[key] = &repeats{due: now.Add(firstQuiet), pause: firstQuiet}
		return 0, true
	}
	if now.Before(r.due) {
		r.count++
		return 0, false
	}
	count, r.count = r.count, 0
	r.pause = min(4*r.pause, mostQuiet)
	r.due = now.Add(r.pause)
	return count, true
}
