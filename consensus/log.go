package consensus

import (
	"context"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// raftLog gives raft a logger whose lines end up in log.
func raftLog(log *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Off, Output: io.Discard})
	l.RegisterSink(sink{log})
	return l
}

// sink is one slog record a line of raft.
type sink struct {
	log *slog.Logger
}

// Accept implements hclog.SinkAdapter.
func (s sink) Accept(name string, level hclog.Level, message string, args ...any) {
	at := slog.LevelDebug
	switch level {
	case hclog.Info:
		at = slog.LevelInfo
	case hclog.Warn:
		at = slog.LevelWarn
	case hclog.Error:
		at = slog.LevelError
	}
	s.log.Log(context.Background(), at, message, append(args, slog.String("component", name))...)
}
