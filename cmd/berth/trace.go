package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/telemetry"
)

type traceCommand struct {
	Request string        `arg:"" help:"The x-request-id of a response."`
	Traces  string        `help:"Base of the trace store of berth up." default:"http://127.0.0.1:8084"`
	Wait    time.Duration `help:"How long to wait for spans that are on their way." default:"3s"`
	JSON    bool          `help:"Print the spans as JSON."`
}

// Run prints the spans of a request as a tree over time.
func (c *traceCommand) Run(ctx context.Context) error {
	spans, err := c.fetch(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(os.Stdout).Encode(spans)
	}
	drawTrace(os.Stdout, spans)
	return nil
}

// whole says that a trace has its root, and the worker's part of what the root's program sent to one: spans arrive when
// they end, from each program for itself.
func whole(spans []span) bool {
	root := slices.IndexFunc(spans, func(s span) bool { return s.Parent == "" })
	if root < 0 {
		return false
	}
	for _, s := range spans {
		sent := s.Name == telemetry.SpanGenerate && s.Service == spans[root].Service && s.Failed == ""
		if sent && !slices.ContainsFunc(spans, func(c span) bool { return c.Parent == s.ID }) {
			return false
		}
	}
	return true
}

// fetch asks until the trace is whole, or it has waited long enough.
func (c *traceCommand) fetch(ctx context.Context) ([]span, error) {
	for deadline := time.Now().Add(c.Wait); ; {
		var spans []span
		err := getJSON(ctx, strings.TrimSuffix(c.Traces, "/")+"/traces/"+strings.TrimPrefix(strings.TrimPrefix(c.Request, "cmpl-"), "chatcmpl-"), &spans)
		if err == nil && whole(spans) || time.Now().After(deadline) {
			return spans, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func drawTrace(out io.Writer, spans []span) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End)) })
	known := map[string]bool{}
	lo, hi := ^uint64(0), uint64(0)
	for _, s := range spans {
		known[s.ID] = true
		lo, hi = min(lo, s.Start), max(hi, s.End)
	}
	for _, s := range spans {
		if !known[s.Parent] {
			drawSpan(out, spans, s, 0, lo, hi)
		}
	}
}

func drawSpan(out io.Writer, spans []span, s span, depth int, lo, hi uint64) {
	const width = 30
	from := int((s.Start - lo) * width / max(1, hi-lo))
	n := max(1, int((s.End-s.Start)*width/max(1, hi-lo)))
	bar := strings.Repeat(" ", min(from, width-1)) + strings.Repeat("━", min(n, width-min(from, width-1)))
	fmt.Fprintf(out, "%-*s %9.3f ms  %-*s  %s\n", 40, strings.Repeat("  ", depth)+s.Name, float64(s.End-s.Start)/1e6, width, bar, notes(s))
	for _, child := range spans {
		if child.Parent == s.ID {
			drawSpan(out, spans, child, depth+1, lo, hi)
		}
	}
}

// notes are a span's attributes in short, and why it failed.
func notes(s span) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(s.Attributes)) {
		short, ours := strings.CutPrefix(k, "berth.")
		if !ours {
			if short, ours = strings.CutPrefix(k, "gen_ai.usage."); !ours {
				continue
			}
		}
		parts = append(parts, short+"="+s.Attributes[k])
	}
	if s.Failed != "" {
		parts = append(parts, "failed: "+s.Failed)
	}
	return strings.Join(parts, " ")
}
