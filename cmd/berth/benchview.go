package main

import (
	"fmt"
	"html"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// benchResult is a run in numbers; times are in milliseconds.
type benchResult struct {
	Workload     string             `json:"workload"`
	Requests     int                `json:"requests"`
	Succeeded    int                `json:"succeeded"`
	Seconds      float64            `json:"seconds"`
	OutputRate   float64            `json:"output_tokens_per_s"`
	PromptTokens int                `json:"prompt_tokens"`
	CachedTokens int                `json:"cached_tokens"`
	FirstMS      map[string]float64 `json:"first_token_ms"`
	GapMS        map[string]float64 `json:"inter_token_ms"`
	Failures     map[string]int     `json:"failures,omitempty"`
	Tenants      map[string]int     `json:"tenant_tokens,omitempty"`
}

func summarise(c *benchCommand, samples []sample, took time.Duration) benchResult {
	r := benchResult{Workload: c.Workload, Requests: len(samples), Seconds: took.Seconds(), Failures: map[string]int{}, Tenants: map[string]int{}}
	tokens := 0
	for _, s := range samples {
		if s.failed != "" {
			r.Failures[s.failed]++
			continue
		}
		r.Succeeded++
		tokens += s.generated
		r.PromptTokens += s.prompt
		r.CachedTokens += s.cached
		if s.tenant != "" {
			r.Tenants[s.tenant] += s.generated
		}
	}
	r.OutputRate = float64(tokens) / took.Seconds()
	first, gaps := series(samples)
	r.FirstMS, r.GapMS = percentiles(first), percentiles(gaps)
	return r
}

// series are the times to first text and between texts of what succeeded, ascending, in milliseconds.
func series(samples []sample) (first, gaps []float64) {
	for _, s := range samples {
		if s.failed != "" || s.first == 0 {
			continue
		}
		first = append(first, ms(s.first))
		for _, g := range s.gaps {
			gaps = append(gaps, ms(g))
		}
	}
	slices.Sort(first)
	slices.Sort(gaps)
	return first, gaps
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func percentiles(sorted []float64) map[string]float64 {
	out := map[string]float64{}
	if len(sorted) == 0 {
		return out
	}
	for name, p := range map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99} {
		out[name] = sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
	}
	out["max"] = sorted[len(sorted)-1]
	return out
}

// drawBench prints a result for people, with the distributions as bars.
func drawBench(out io.Writer, c *benchCommand, r benchResult, samples []sample) {
	fmt.Fprintf(out, "%s: %d of %d requests in %.1f s at %s: %.1f tokens/s; %d of %d prompt tokens cached\n\n", r.Workload,
		r.Succeeded, r.Requests, r.Seconds, c.pace(), r.OutputRate, r.CachedTokens, r.PromptTokens)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "ms\tp50\tp90\tp99\tmax\t")
	for _, row := range []struct {
		name string
		m    map[string]float64
	}{{"to first token", r.FirstMS}, {"between tokens", r.GapMS}} {
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.1f\t%.1f\t\n", row.name, row.m["p50"], row.m["p90"], row.m["p99"], row.m["max"])
	}
	t.Flush()
	first, gaps := series(samples)
	drawBars(out, "to first token, ms", first)
	drawBars(out, "between tokens, ms", gaps)
	for _, name := range slices.Sorted(maps.Keys(r.Tenants)) {
		fmt.Fprintf(out, "tenant %s: %d tokens\n", name, r.Tenants[name])
	}
	for _, why := range slices.Sorted(maps.Keys(r.Failures)) {
		fmt.Fprintf(out, "failed %d × %s\n", r.Failures[why], why)
	}
}

func (c *benchCommand) pace() string {
	if c.Rate > 0 {
		return fmt.Sprintf("%g requests/s", c.Rate)
	}
	return fmt.Sprintf("%d at a time", c.Concurrency)
}

// drawBars draws a histogram whose bins double in width.
func drawBars(out io.Writer, title string, sorted []float64) {
	if len(sorted) == 0 {
		return
	}
	bins := map[int]int{}
	most := 0
	for _, v := range sorted {
		b := bin(v)
		bins[b]++
		most = max(most, bins[b])
	}
	fmt.Fprintf(out, "\n%s\n", title)
	for b := bin(sorted[0]); b <= bin(sorted[len(sorted)-1]); b++ {
		fmt.Fprintf(out, "%9.1f │%-40s %d\n", math.Exp2(float64(b)/2), strings.Repeat("█", (bins[b]*40+most-1)/most), bins[b])
	}
}

// bin numbers half-octaves of milliseconds.
func bin(v float64) int { return int(math.Floor(2 * math.Log2(max(v, 0.01)))) }

// drawSVG draws both distributions as cumulative curves over a logarithmic axis of milliseconds.
func drawSVG(c *benchCommand, samples []sample) string {
	const w, h, left, top = 640.0, 360.0, 60.0, 40.0
	first, gaps := series(samples)
	lo, hi := 0.1, 1.0
	for _, s := range [][]float64{first, gaps} {
		if len(s) > 0 {
			hi = max(hi, s[len(s)-1])
		}
	}
	x := func(v float64) float64 {
		return left + (w-left-20)*math.Log(max(v, lo)/lo)/math.Log(hi/lo)
	}
	y := func(p float64) float64 { return top + (h-top-40)*(1-p) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12">`, w, h)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/><text x="%g" y="20">%s, %s</text>`, left, html.EscapeString(c.Workload), html.EscapeString(c.pace()))
	for v := lo; v <= hi; v *= 10 {
		fmt.Fprintf(&b, `<path d="M%.1f %.1fV%.1f" stroke="#ddd"/><text x="%.1f" y="%.1f" text-anchor="middle">%g ms</text>`, x(v), top, y(0), x(v), h-20, v)
	}
	for _, p := range []float64{0, 0.5, 0.9, 1} {
		fmt.Fprintf(&b, `<path d="M%g %.1fH%g" stroke="#ddd"/><text x="%g" y="%.1f" text-anchor="end">%g %%</text>`, left, y(p), w-20, left-6, y(p)+4, p*100)
	}
	for i, s := range []struct {
		name, colour string
		values       []float64
	}{{"to first token", "#d33", first}, {"between tokens", "#36c", gaps}} {
		fmt.Fprintf(&b, `<text x="%g" y="%g" fill="%s">%s</text><polyline fill="none" stroke="%s" stroke-width="2" points="`, w-120, top+16*float64(i+1), s.colour, s.name, s.colour)
		for j, v := range s.values {
			fmt.Fprintf(&b, "%.1f,%.1f ", x(v), y(float64(j+1)/float64(len(s.values))))
		}
		b.WriteString(`"/>`)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
