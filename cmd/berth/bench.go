package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/berthd/berth/cmd/flags"
)

type benchCommand struct {
	URL          string        `name:"url" help:"Base of the OpenAI API of any server." default:"http://127.0.0.1:8080"`
	Model        string        `help:"Model name. Default: the first that the server lists."`
	Workload     string        `help:"prefix: all share their beginning. unique: nothing is shared. multiturn: conversations that grow." enum:"prefix,unique,multiturn" default:"prefix"`
	Requests     int           `help:"Requests in all." default:"64"`
	Concurrency  int           `help:"Requests at a time." default:"8"`
	Rate         float64       `help:"Requests a second, at random times, instead of as fast as answers come. 0: off."`
	SharedWords  int           `help:"Words that all prompts begin with (prefix, multiturn)." default:"256"`
	PromptWords  int           `help:"Words of each prompt's own, or of each turn." default:"32"`
	Turns        int           `help:"Turns of a conversation (multiturn)." default:"6"`
	MaxTokens    int           `help:"Tokens to generate for each." default:"64"`
	Key          []string      `help:"API keys to use in turn, one for each tenant, as NAME=KEY; @FILE is the key in a file." placeholder:"NAME=KEY|@FILE,..."`
	Seed         uint64        `help:"Makes the same prompts again." default:"1"`
	Timeout      time.Duration `help:"Longest time of one request." default:"10m"`
	SVG          string        `name:"svg" help:"Draw the distributions into this file." placeholder:"FILE"`
	JSON         bool          `help:"Print the result as JSON."`
	NoIgnoreStop bool          `name:"stop-early" help:"Let answers end before max-tokens."`
}

// sample is what one request came to.
type sample struct {
	tenant    string
	started   time.Duration // since the run began
	first     time.Duration // from sending to the first text
	total     time.Duration
	gaps      []time.Duration // between events with text
	prompt    int
	cached    int
	generated int
	failed    string // error id or what went wrong, empty if nothing
}

// prepare finds out before the run what would break it at its end, and reads the keys.
func (c *benchCommand) prepare() error {
	if c.SVG != "" {
		f, err := os.Create(c.SVG)
		if err != nil {
			return &flags.UsageError{Err: fmt.Errorf("--svg: %w", err)}
		}
		f.Close()
	}
	for i, k := range c.Key {
		name, key, named := strings.Cut(k, "=")
		if !named {
			name, key = fmt.Sprintf("tenant %d", i+1), k
		}
		key, err := readKey(key)
		if err != nil {
			return &flags.UsageError{Err: fmt.Errorf("--key: %w", err)}
		}
		c.Key[i] = name + "=" + key
	}
	return nil
}

// readKey is a key, or what stands in the file after @: command lines are seen by everybody on a machine.
func readKey(key string) (string, error) {
	file, ok := strings.CutPrefix(key, "@")
	if !ok {
		return key, nil
	}
	raw, err := os.ReadFile(file)
	return strings.TrimSpace(string(raw)), err
}

// Run sends the workload and prints what came of it. It exits with 1 if a request failed.
func (c *benchCommand) Run(ctx context.Context) error {
	if c.Requests < 1 || c.Concurrency < 1 || c.MaxTokens < 1 || c.PromptWords < 1 || c.Turns < 1 {
		return &flags.UsageError{Err: errors.New("--requests, --concurrency, --max-tokens, --prompt-words and --turns must be 1 or more")}
	}
	if err := c.prepare(); err != nil {
		return err
	}
	_, key := c.tenant(0)
	e := endpoint{URL: c.URL, Model: c.Model, APIKey: key}
	if err := e.choose(ctx); err != nil {
		return err
	}
	c.Model = e.Model
	bar := progressbar.NewOptions(c.Requests, progressbar.OptionSetWriter(os.Stderr), progressbar.OptionSetDescription(c.Workload),
		progressbar.OptionShowCount(), progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetVisibility(term.IsTerminal(int(os.Stderr.Fd()))))
	began := time.Now()
	samples := c.drive(ctx, began, func() { bar.Add(1) })
	fmt.Fprintln(os.Stderr)
	r := summarise(c, samples, time.Since(began))
	if c.SVG != "" {
		if err := os.WriteFile(c.SVG, []byte(drawSVG(c, samples)), 0o644); err != nil {
			return err
		}
	}
	if c.JSON {
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return err
		}
	} else {
		drawBench(os.Stdout, c, r, samples)
	}
	if n := len(samples) - r.Succeeded; n > 0 {
		return fmt.Errorf("%d of %d requests failed", n, len(samples))
	}
	return ctx.Err()
}

// drive runs all conversations, each one request after the other, and returns their samples.
func (c *benchCommand) drive(ctx context.Context, began time.Time, done func()) []sample {
	talks := c.conversations()
	next := make(chan int)
	go func() {
		defer close(next)
		rng := rand.New(rand.NewPCG(c.Seed, 99))
		for i := range talks {
			if c.Rate > 0 {
				select {
				case <-time.After(time.Duration(rng.ExpFloat64() / c.Rate * float64(time.Second))):
				case <-ctx.Done():
					return
				}
			}
			select {
			case next <- i:
			case <-ctx.Done():
				return
			}
		}
	}()
	var mu sync.Mutex
	var all []sample
	var wg sync.WaitGroup
	for range c.lanes() {
		wg.Go(func() {
			for i := range next {
				c.converse(ctx, i, talks[i], began, func(s sample) {
					mu.Lock()
					all = append(all, s)
					mu.Unlock()
					done()
				})
			}
		})
	}
	wg.Wait()
	slices.SortFunc(all, func(a, b sample) int { return int(a.started - b.started) })
	return all
}

// lanes is how many conversations run at once: at a given rate, as many as come.
func (c *benchCommand) lanes() int {
	if c.Rate > 0 {
		return c.Requests
	}
	return c.Concurrency
}

// converse sends a conversation's turns; each prompt is all that was said before, and the next turn.
func (c *benchCommand) converse(ctx context.Context, index int, turns []string, began time.Time, done func(sample)) {
	said := ""
	tenant, key := c.tenant(index)
	for _, turn := range turns {
		said += turn
		s := sample{tenant: tenant, started: time.Since(began)}
		text := c.ask(ctx, key, said, &s)
		said += text
		done(s)
	}
}

func (c *benchCommand) tenant(index int) (name, key string) {
	if len(c.Key) == 0 {
		return "", ""
	}
	name, key, _ = strings.Cut(c.Key[index%len(c.Key)], "=")
	return name, key
}

// ask streams one completion and times it.
func (c *benchCommand) ask(ctx context.Context, key, prompt string, s *sample) string {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	body := map[string]any{
		"model": c.Model, "prompt": prompt, "max_tokens": c.MaxTokens, "temperature": 0, "ignore_eos": !c.NoIgnoreStop,
		"stream": true, "stream_options": map[string]any{"include_usage": true},
	}
	sent := time.Now()
	resp, err := postJSON(ctx, strings.TrimSuffix(c.URL, "/")+"/v1/completions", key, body)
	if err != nil {
		s.failed = err.Error()
		return ""
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		s.failed, _, _ = strings.Cut(apiError(resp.Body, resp.StatusCode).Error(), ":")
		return ""
	}
	last := sent
	var text strings.Builder
	err = eachEvent(resp.Body, func(e *event) {
		if e.Usage != nil {
			s.prompt, s.generated, s.cached = e.Usage.Prompt, e.Usage.Completion, e.Usage.Details.Cached
		}
		for _, choice := range e.Choices {
			if choice.Text == "" {
				continue
			}
			now := time.Now()
			if s.first == 0 {
				s.first = now.Sub(sent)
			} else {
				s.gaps = append(s.gaps, now.Sub(last))
			}
			last = now
			text.WriteString(choice.Text)
		}
	})
	s.total = time.Since(sent)
	if err != nil {
		s.failed, _, _ = strings.Cut(err.Error(), ":")
	}
	return text.String()
}
