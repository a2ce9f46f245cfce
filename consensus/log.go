package consensus

import (
	"context"
	"fmt"
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
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			args[i] = fmt.Sprintf(f[0].(string), f[1:]...)
		}
	}
	s.log.Log(context.Background(), at, message, append(args, slog.String("component", name))...)
}
