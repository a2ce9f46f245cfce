package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/term"
)

type topCommand struct {
	operator
	URL      string        `name:"url" help:"Base of the same router's OpenAI API, for its metrics." default:"http://127.0.0.1:8080"`
	Interval time.Duration `help:"Time between two looks." default:"1s"`
	Rounds   int           `help:"Looks before it ends; 0: until interrupted." default:"0"`
}

// reading is what the metrics say at a time.
type reading struct {
	at            time.Time
	input, output float64 // tokens so far
	firsts        float64 // seconds until first tokens, in all
	firstCount    float64
	requests      float64
}

// Run shows the cluster, and what it did since the last look, until it is interrupted.
func (c *topCommand) Run(ctx context.Context) error {
	live := term.IsTerminal(int(os.Stdout.Fd()))
	before, err := c.read(ctx)
	if err != nil {
		return err
	}
	for round := 1; ; round++ {
		select {
		case <-time.After(c.Interval):
		case <-ctx.Done():
			return nil
		}
		raw, err := c.ask(ctx, http.MethodGet, "cluster", nil)
		if err != nil {
			return err
		}
		var s clusterState
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		now, err := c.read(ctx)
		if err != nil {
			return err
		}
		var screen strings.Builder
		if live {
			screen.WriteString("\x1b[H\x1b[2J") // home, clear
		}
		drawRates(&screen, &before, &now)
		draw(&screen, &s)
		io.WriteString(os.Stdout, screen.String())
		if round == c.Rounds {
			return nil
		}
		before = now
	}
}

func drawRates(out io.Writer, before, now *reading) {
	seconds := now.at.Sub(before.at).Seconds()
	rate := func(a, b float64) float64 { return (b - a) / seconds }
	first := "-"
	if n := now.firstCount - before.firstCount; n > 0 {
		first = fmt.Sprintf("%.0f ms", 1000*(now.firsts-before.firsts)/n)
	}
	fmt.Fprintf(out, "%s  %.1f tokens/s out, %.1f in; %.1f requests/s; first token after %s\n\n", now.at.Format(time.TimeOnly),
		rate(before.output, now.output), rate(before.input, now.input), rate(before.requests, now.requests), first)
}

// read takes what it needs from the router's metrics.
func (c *topCommand) read(ctx context.Context) (r reading, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.URL, "/")+"/metrics", nil)
	if err != nil {
		return r, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return r, unreachable(err)
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return r, fmt.Errorf("the metrics of %s: %w", c.URL, err)
	}
	r.at = time.Now()
	r.input = sum(all["berth_tenant_tokens_total"], "kind", "input")
	r.output = sum(all["berth_tenant_tokens_total"], "kind", "output")
	r.requests = sum(all["berth_requests_total"], "", "")
	for _, m := range all["gen_ai_server_time_to_first_token_seconds"].GetMetric() {
		r.firsts += m.GetHistogram().GetSampleSum()
		r.firstCount += float64(m.GetHistogram().GetSampleCount())
	}
	return r, nil
}

// sum adds a counter's series up, those with a label's value if one is named.
func sum(f *dto.MetricFamily, label, value string) (total float64) {
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			if l.GetName() == label && l.GetValue() != value {
				m = nil
				break
			}
		}
		total += m.GetCounter().GetValue()
	}
	return total
}
