//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/berthd/berth/backendtest"
)

// ids is a prompt of n token ids of the tiny model, BOS first.
func ids(seed uint64, n int) []int32 {
	rng := rand.New(rand.NewPCG(seed, 7))
	out := []int32{2}
	for len(out) < n {
		out = append(out, 262+rng.Int32N(560))
	}
	return out
}

func greedy(prompt []int32, n int) object {
	return object{"prompt": prompt, "max_tokens": n, "temperature": 0, "ignore_eos": true, "return_token_ids": true}
}

// TestSameAsAlone asks the same prompts alone and cold, warm, in a crowd of 32 mixed ones, and on workers that cut prompts
// into chunks of 16 and 256 tokens, use pages of another size, or one thread: the ids are the same, always (P6).
func TestSameAsAlone(t *testing.T) {
	other := []string{"--max-batch-tokens", "16", "--threads", "1", "--block-size", "64"}
	t.Run("tiny", func(t *testing.T) {
		sameAsAlone(t, tinyModel, 40, 1, nil, []string{"--max-batch-tokens", "16"}, []string{"--block-size", "64", "--threads", "1"}, other)
	})
	t.Run("real", func(t *testing.T) { sameAsAlone(t, backendtest.RealModelPath(t), 16, 4, other) })
}

// sameAsAlone asks each prompt for n tokens; only every few-th prompt is asked alone, to save time.
func sameAsAlone(t *testing.T, model string, n, every int, workers ...[]string) {
	c := startCluster(t)
	c.addWorker("w1", model, "--kv-memory", "256MiB")
	prompts := make([][]int32, 32)
	alone := map[int][]int32{}
	for i := range prompts {
		prompts[i] = append(ids(uint64(i%4), 30*(i%4)), ids(uint64(100+i), 3+13*(i%9))...)
		if i%every != 0 {
			continue
		}
		a, err := c.complete(greedy(prompts[i], n))
		if err != nil {
			t.Fatal(err)
		}
		if alone[i] = a.Choices[0].TokenIDs; len(alone[i]) != n {
			t.Fatalf("prompt %d: %d ids", i, len(alone[i]))
		}
	}
	crowd := func(what string) {
		var wg sync.WaitGroup
		for i := range prompts {
			wg.Go(func() {
				a, err := c.complete(greedy(prompts[i], n))
				if err != nil {
					t.Errorf("%s, prompt %d: %v", what, i, err)
				} else if want := alone[i]; want != nil && !slices.Equal(a.Choices[0].TokenIDs, want) {
					t.Errorf("%s, prompt %d: %v, alone %v", what, i, a.Choices[0].TokenIDs, want)
				}
			})
		}
		wg.Wait()
		c.awaitDrained()
	}
	crowd("warm crowd")
	for _, args := range workers {
		c.workers[0].kill()
		c.workers = nil
		c.addWorker("w1", model, append([]string{"--kv-memory", "256MiB"}, args...)...)
		crowd(fmt.Sprint("cold crowd ", args))
	}
}

// TestHalfOfTheDemand runs a crowd on half the pages that it wants: nothing fails, nothing is cut, all as alone.
func TestHalfOfTheDemand(t *testing.T) {
	// 420 tokens of the tiny model want 27 blocks of full attention and 3 in each of 5 windows: 42 pages of 2 KiB a
	// request, 1008 in all; a pool of 624 has 120 of overhead and 504 for requests.
	t.Run("tiny", func(t *testing.T) { halfOfTheDemand(t, tinyModel, 24, 400, 624*2048) })
	// 180 tokens of the real one want 12 blocks in 6 groups: 72 pages of 48 KiB a request, 432 in all.
	t.Run("real", func(t *testing.T) { halfOfTheDemand(t, backendtest.RealModelPath(t), 6, 160, 336*49152) })
}

func halfOfTheDemand(t *testing.T, model string, n, max, memory int) {
	c := startCluster(t)
	c.addWorker("w1", model, "--kv-memory", "64MiB")
	alone := make([][]int32, n)
	for i := range alone {
		a, err := c.complete(greedy(ids(uint64(i), 20), max))
		if err != nil {
			t.Fatal(err)
		}
		alone[i] = a.Choices[0].TokenIDs
	}
	c.workers[0].kill()
	c.workers = nil
	small := c.addWorker("w1", model, "--kv-memory", fmt.Sprint(memory))
	var wg sync.WaitGroup
	for i := range alone {
		wg.Go(func() {
			a, err := c.complete(greedy(ids(uint64(i), 20), max))
			if err != nil {
				t.Errorf("request %d: %v", i, err)
			} else if !slices.Equal(a.Choices[0].TokenIDs, alone[i]) || a.Choices[0].Finish != "length" {
				t.Errorf("request %d: %d ids, finish %q, not as alone", i, len(a.Choices[0].TokenIDs), a.Choices[0].Finish)
			}
		})
	}
	wg.Wait()
	c.awaitDrained()
	if line := metric(t, small, "berth_preemptions_total"); strings.HasSuffix(line, " 0") {
		t.Errorf("%s: the pool is too large for this test", line)
	} else {
		t.Log(line)
	}
}

// TestTightPool sends crowds at a pool that holds little more than one of their requests, with clients that leave: every
// other answer comes, and is as on a roomy worker (P1, P2).
func TestTightPool(t *testing.T) {
	c := startCluster(t)
	c.addWorker("w1", tinyModel, "--kv-memory", "32MiB", "--max-model-len", "400")
	rng := rand.New(rand.NewPCG(3, 3))
	bodies, roomy := make([]object, 40), make([][]int32, 40)
	for i := range bodies {
		total := 2 + rng.IntN(318) // 320 tokens are all that 35 pages hold
		n := 1 + rng.IntN(total-1)
		bodies[i] = greedy(append(ids(uint64(i%4), min(n, 60)), ids(uint64(i), max(1, n-60))[1:]...), max(1, total-n))
		a, err := c.complete(bodies[i])
		if err != nil {
			t.Fatal(err)
		}
		roomy[i] = a.Choices[0].TokenIDs
	}
	c.workers[0].kill()
	c.workers = nil
	c.addWorker("w1", tinyModel, "--kv-memory", fmt.Sprint(80*2048), "--max-model-len", "400", "--max-batch-tokens", "16")
	for round := range 4 {
		var wg sync.WaitGroup
		for i := range bodies {
			leaves := rng.IntN(5) == 0
			wg.Go(func() {
				if leaves {
					body := object{}
					maps.Copy(body, bodies[i])
					if err := c.firstChunks(body, 1+i%5); err != nil {
						t.Errorf("round %d, request %d, leaving: %v", round, i, err)
					}
					return
				}
				a, err := c.complete(maps.Clone(bodies[i]))
				if err != nil {
					t.Errorf("round %d, request %d: %v", round, i, err)
				} else if !slices.Equal(a.Choices[0].TokenIDs, roomy[i]) {
					t.Errorf("round %d, request %d: %d ids, not as on a roomy worker", round, i, len(a.Choices[0].TokenIDs))
				}
			})
		}
		wg.Wait()
		c.awaitDrained()
	}
}

// TestCancelledStreamsLeaveNothing has 64 clients leave at random moments (B48).
func TestCancelledStreamsLeaveNothing(t *testing.T) {
	c := startCluster(t)
	c.addWorker("w1", tinyModel, "--kv-memory", "16MiB")
	c.addWorker("w2", tinyModel, "--kv-memory", "16MiB")
	for round := range 3 {
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				body := greedy(ids(uint64(i%9), 5+i*4), 400)
				if err := c.firstChunks(body, 1+(i*7+round)%30); err != nil {
					t.Errorf("stream %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		c.awaitDrained()
	}
	if _, err := c.complete(greedy(ids(1, 20), 5)); err != nil {
		t.Error(err)
	}
}

// TestRefusals asks for what cannot be, each with the field or numbers that the answer must name.
func TestRefusals(t *testing.T) {
	c := startCluster(t)
	c.addWorker("w1", tinyModel, "--kv-memory", fmt.Sprint(460*2048))
	text := func(s string) []byte { return []byte(s) }
	for _, tc := range []struct {
		name, path string
		body       any
		status     int
		id, param  string
	}{
		{"too long", "/v1/completions", object{"model": "m", "prompt": ids(1, 600), "max_tokens": 600}, 400, "CTX-001", ""},
		{"prompt too long", "/v1/completions", object{"model": "m", "prompt": ids(1, 1100)}, 400, "CTX-001", ""},
		{"bad JSON", "/v1/completions", text(`{"model":"m","prompt":`), 400, "REQ-001", ""},
		{"not an object", "/v1/completions", text(`[1]`), 400, "REQ-001", ""},
		{"wrong type", "/v1/completions", object{"model": "m", "prompt": "a", "max_tokens": "three"}, 400, "REQ-001", "max_tokens"},
		{"unknown model", "/v1/completions", object{"model": "other", "prompt": "a"}, 404, "MDL-001", "model"},
		{"id beyond vocabulary", "/v1/completions", object{"model": "m", "prompt": []int{5, 99999}}, 400, "REQ-001", "prompt"},
		{"negative id", "/v1/completions", object{"model": "m", "prompt": []int{-1}}, 400, "REQ-001", "prompt"},
		{"huge id", "/v1/completions", object{"model": "m", "prompt": []int{2147483648}}, 400, "REQ-001", "prompt"},
		{"empty prompt", "/v1/completions", object{"model": "m", "prompt": []int{}}, 400, "REQ-001", "prompt"},
		{"negative temperature", "/v1/completions", object{"model": "m", "prompt": "a", "temperature": -1}, 400, "REQ-001", "temperature"},
		{"NaN", "/v1/completions", text(`{"model":"m","prompt":"a","temperature":NaN}`), 400, "REQ-001", ""},
		{"infinite", "/v1/completions", text(`{"model":"m","prompt":"a","temperature":1e999}`), 400, "REQ-001", "temperature"},
		{"NaN as text", "/v1/completions", object{"model": "m", "prompt": "a", "temperature": "nan"}, 400, "REQ-001", "temperature"},
		{"top_p above 1", "/v1/completions", object{"model": "m", "prompt": "a", "top_p": 1.0001}, 400, "REQ-001", "top_p"},
		{"bias beyond vocabulary", "/v1/completions", object{"model": "m", "prompt": "a", "logit_bias": object{"99999999": -100}}, 400, "REQ-001", "logit_bias"},
		{"stop id beyond vocabulary", "/v1/completions", object{"model": "m", "prompt": "a", "stop_token_ids": []int{999999}}, 400, "REQ-001", "stop_token_ids"},
		{"max_tokens 0", "/v1/completions", object{"model": "m", "prompt": "a", "max_tokens": 0}, 400, "REQ-001", "max_tokens"},
		{"no messages", "/v1/chat/completions", object{"model": "m", "messages": []object{}}, 400, "REQ-001", "messages"},
		{"tools", "/v1/chat/completions", object{"model": "m", "messages": []object{{"role": "user", "content": "a"}}, "tools": []object{{"type": "function"}}}, 400, "REQ-002", "tools"},
		{"n", "/v1/completions", object{"model": "m", "prompt": "a", "n": 200}, 400, "REQ-001", "n"},
		{"suffix", "/v1/completions", object{"model": "m", "prompt": "a", "suffix": "b"}, 400, "REQ-002", "suffix"},
		{"role", "/v1/chat/completions", object{"model": "m", "messages": []object{{"role": "robot", "content": "a"}}}, 400, "REQ-001", "messages[0].role"},
		{"embeddings", "/v1/embeddings", object{"model": "m", "input": "a"}, 400, "REQ-002", ""},
		{"lone surrogate", "/v1/completions", text(`{"model":"m","prompt":"\ud800"}`), 400, "REQ-001", "prompt"},
		{"invalid UTF-8", "/v1/completions", text("{\"model\":\"m\",\"prompt\":\"\xff\xfe\"}"), 400, "REQ-001", ""},
	} {
		a, err := c.post(context.Background(), tc.path, tc.body)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if a.status != tc.status || a.Error.Berth["id"] != tc.id || a.Error.Param != tc.param && tc.param != "" || a.Error.Message == "" {
			t.Errorf("%s: status %d, %+v; want %d, %s, param %q", tc.name, a.status, a.Error, tc.status, tc.id, tc.param)
		}
	}
	if _, err := c.complete(greedy(ids(1, 9), 3)); err != nil {
		t.Errorf("after all refusals: %v", err)
	}
	c.awaitDrained()
}

// TestNeverFits has a pool that no request of the model's length fits into alone: it says so at once, with numbers.
func TestNeverFits(t *testing.T) {
	c := startCluster(t)
	c.addWorker("w1", tinyModel, "--kv-memory", fmt.Sprint(150*2048)) // 30 pages beside the overhead: 15 + 15 windows
	a, err := c.post(context.Background(), "/v1/completions", greedyModel(ids(1, 400), 100))
	if err != nil {
		t.Fatal(err)
	}
	if a.status != 400 || a.Error.Berth["id"] != "KV-001" || a.Error.Code != "kv_capacity_exceeded" {
		t.Fatalf("status %d, %+v", a.status, a.Error)
	}
	t.Logf("%s %v", a.Error.Message, a.Error.Berth)
	numbers := 0
	for _, v := range a.Error.Berth {
		if _, ok := v.(float64); ok {
			numbers++
		}
	}
	if numbers < 4 {
		t.Errorf("need and capacity in tokens and pages are missing: %v", a.Error.Berth)
	}
	if _, err := c.complete(greedy(ids(1, 20), 5)); err != nil {
		t.Errorf("a small request beside it: %v", err)
	}
}

func greedyModel(prompt []int32, n int) object {
	b := greedy(prompt, n)
	b["model"] = "m"
	return b
}

// metric is the line of a metric on a worker's /metrics.
func metric(t *testing.T, p *process, name string) string {
	t.Helper()
	body := get(t, "http://"+p.addrs["http"]+"/metrics")
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, name) {
			return strings.TrimSpace(line)
		}
	}
	return name + " is absent"
}
