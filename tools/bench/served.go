package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// load is one way to load a server.
type load struct {
	name  string
	args  []string // of berth bench
	slots int      // of llama-server: it serves this load best with so many
	busy  int      // busy loops beside it
}

// loads are served by a fresh server each. Prompts share 256 words and have 32 of their own; answers have 64 tokens.
var loads = []load{
	{"1 client", []string{"--requests", "16", "--concurrency", "1"}, 8, 0},
	{"8 clients", []string{"--requests", "64", "--concurrency", "8"}, 8, 0},
	{"32 clients", []string{"--requests", "64", "--concurrency", "32"}, 32, 0},
	{"8 conversations of 6 turns", []string{
		"--workload", "multiturn", "--requests", "48", "--concurrency", "8", "--shared-words", "64",
	}, 8, 0},
	{"busy: 1 client beside 4 busy loops, 32 words, 24 tokens", []string{
		"--requests", "6", "--concurrency", "1", "--shared-words", "16", "--prompt-words", "16", "--max-tokens", "24",
	}, 8, 4},
}

// outcome is what berth bench says of a run.
type outcome struct {
	Requests, Succeeded int
	OutputRate          float64            `json:"output_tokens_per_s"`
	FirstMS             map[string]float64 `json:"first_token_ms"`
	Prompt              int                `json:"prompt_tokens"`
	Cached              int                `json:"cached_tokens"`
}

// side is one kind of server.
type side struct {
	start func(ctx context.Context, dir string, l *load) *exec.Cmd
	ready string // path that answers 200 when it can work
	url   string
	runs  map[string][]outcome
}

// runServed stops what it started when it is interrupted.
func runServed(rounds, threads int, llama, model, only string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	sides := []*side{
		{start: berthServer(threads, model), ready: "/readyz", url: "http://127.0.0.1:18080", runs: map[string][]outcome{}},
		{start: llamaServer(threads, llama, model), ready: "/health", url: "http://127.0.0.1:18090", runs: map[string][]outcome{}},
	}
	for i := range rounds {
		for l := range loads {
			for s := range sides {
				side := sides[(s+i)%len(sides)]
				if !strings.HasPrefix(loads[l].name, only) {
					continue
				}
				fmt.Fprintf(os.Stderr, "round %d of %d, %s, %s\n", i+1, rounds, loads[l].name, side.url)
				if err := side.serve(ctx, &loads[l]); err != nil {
					return fmt.Errorf("%s, %s: %w", loads[l].name, side.url, err)
				}
				fmt.Fprintf(os.Stderr, "  %+v\n", side.runs[loads[l].name][i])
			}
		}
	}
	printServed(rounds, only, sides[0].runs, sides[1].runs)
	return nil
}

func berthServer(threads int, model string) func(context.Context, string, *load) *exec.Cmd {
	return func(ctx context.Context, dir string, _ *load) *exec.Cmd {
		return exec.CommandContext(ctx, "bin/berth", "up", "--workers", "1", "--model", model, "--threads", strconv.Itoa(threads), "--data", dir,
			"--http", "127.0.0.1:18080", "--rpc", "127.0.0.1:18081", "--admin", "127.0.0.1:18082", "--raft", "127.0.0.1:18083",
			"--traces", "127.0.0.1:18084")
	}
}

func llamaServer(threads int, llama, model string) func(context.Context, string, *load) *exec.Cmd {
	return func(ctx context.Context, _ string, l *load) *exec.Cmd {
		n, t := strconv.Itoa(l.slots), strconv.Itoa(threads)
		return exec.CommandContext(ctx, filepath.Join(llama, "llama-server"), "-m", model, "-t", t, "-tb", t, "-fa", "on", "--offline",
			"-np", n, "-c", strconv.Itoa(1024*l.slots), "--swa-full", "--port", "18090")
	}
}

// serve starts a server, loads it, and stops it.
func (s *side) serve(ctx context.Context, l *load) error {
	dir, err := os.MkdirTemp("", "served")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server := s.start(ctx, dir, l)
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	if err := server.Start(); err != nil {
		return err
	}
	defer func() {
		server.Process.Signal(syscall.SIGTERM)
		server.Wait() // it says how it was ended
	}()
	if err := s.await(ctx); err != nil {
		return err
	}
	for range l.busy {
		loop := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		if err := loop.Start(); err != nil {
			return err
		}
		defer func() { loop.Process.Kill(); loop.Wait() }()
	}
	args := append([]string{"bench", "--json", "--url", s.url}, l.args...)
	// Failed requests make it exit with 1, after its result, which tells of them.
	out, failed := exec.CommandContext(ctx, "bin/berth", args...).Output()
	var o outcome
	if err := json.Unmarshal(out, &o); err != nil {
		return errors.Join(failed, err)
	}
	s.runs[l.name] = append(s.runs[l.name], o)
	return nil
}

// await asks until the server is ready.
func (s *side) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+s.ready, nil)
		if err != nil {
			return err
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("not ready within a minute")
}

func printServed(rounds int, only string, ours, theirs map[string][]outcome) {
	fmt.Printf("| served, median of %d | tok/s out: Berth | llama-server | ratio | first token p50 / p99, ms: Berth | llama-server | of prompts cached: Berth | llama-server |\n", rounds)
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- |")
	rate := func(o outcome) float64 { return o.OutputRate }
	first := func(o []outcome) string {
		return fmt.Sprintf("%.0f / %.0f", of(o, func(o outcome) float64 { return o.FirstMS["p50"] }),
			of(o, func(o outcome) float64 { return o.FirstMS["p99"] }))
	}
	lost := func(runs []outcome) (text string) {
		n, all := 0, 0
		for _, o := range runs {
			n, all = n+o.Requests-o.Succeeded, all+o.Requests
		}
		if n > 0 {
			text = fmt.Sprintf(" (%d of %d requests failed)", n, all)
		}
		return text
	}
	cached := func(o outcome) float64 { return 100 * float64(o.Cached) / float64(max(o.Prompt, 1)) }
	for _, l := range loads {
		if a, b := ours[l.name], theirs[l.name]; strings.HasPrefix(l.name, only) {
			fmt.Printf("| %s | %.1f%s | %.1f%s | **%.2f** | %s | %s | %.0f %% | %.0f %% |\n", l.name, of(a, rate), lost(a),
				of(b, rate), lost(b), of(a, rate)/of(b, rate), first(a), first(b), of(a, cached), of(b, cached))
		}
	}
}

// of is the median of a figure.
func of(runs []outcome, figure func(outcome) float64) float64 {
	v := make([]float64, len(runs))
	for i := range runs {
		v[i] = figure(runs[i])
	}
	return median(v)
}
