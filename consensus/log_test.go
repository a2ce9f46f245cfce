package consensus

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// A peer that is down for an hour is a few lines in the log, with how often raft said it; another peer's are its own, and
// times are readable.
func TestRaftRepeatsItselfInSilence(t *testing.T) {
	var out strings.Builder
	now := time.Now()
	s := &sink{log: slog.New(slog.NewTextHandler(&out, nil)), now: func() time.Time { return now }, seen: map[string]*repeats{}}
	for i := range 3600 * 5 {
		s.Accept("raft", hclog.Error, "failed to heartbeat to", "peer", "r3:8083", "backoff time", 500*time.Millisecond,
			"error", errors.New("refused"))
		if i == 100 {
			s.Accept("raft", hclog.Error, "failed to heartbeat to", "peer", "r2:8083")
		}
		now = now.Add(200 * time.Millisecond)
	}
	s.Accept("raft", hclog.Info, "entering follower state")
	s.Accept("raft", hclog.Info, "entering follower state")
	lines := strings.Count(out.String(), "peer=r3:8083")
	if lines < 3 || lines > 15 || !strings.Contains(out.String(), "repeated=") || strings.Count(out.String(), "r2:8083") != 1 ||
		!strings.Contains(out.String(), `"backoff time"=500ms`) || strings.Count(out.String(), "entering follower") != 2 {
		t.Errorf("%d lines:\n%s", lines, out.String())
	}
}
