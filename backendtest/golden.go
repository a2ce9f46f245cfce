package backendtest

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/berthd/berth/model"
)

const (
	goldenDir = "../testdata/golden"
	realFile  = "gemma3-270m-q4_k_m.gguf"
)

// greedy is a continuation that takes the likeliest token each time. Margin is the distance to the second.
type greedy struct {
	IDs    []int32   `json:"ids"`
	Margin []float32 `json:"margin"`
}

// prompt is one of golden.json.
type prompt struct {
	Name   string  `json:"name"`
	IDs    []int32 `json:"ids"`
	Logits string  `json:"logits"`
	Argmax int32   `json:"argmax"`
	Margin float32 `json:"margin"`
	Greedy greedy  `json:"greedy"`
}

// realPrompt is one of the real model's logits.json.
type realPrompt struct {
	Name        string    `json:"name"`
	IDs         []int32   `json:"ids"`
	TopIDs      []int32   `json:"top_ids"`
	TopLogits   []float32 `json:"top_logits"`
	ProbeLogits []float32 `json:"probe_logits"`
	Greedy      greedy    `json:"greedy"`
}

// perplexity is the real model's perplexity.json.
type perplexity struct {
	IDs    []int32   `json:"ids"`
	NLL    []float64 `json:"nll"` // of token i + 1
	Argmax []int32   `json:"argmax"`
	Margin []float32 `json:"margin"`
}

func readJSON(t testing.TB, name string, into any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(goldenDir, name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

func readTensors(t testing.TB, name string) *model.Safetensors {
	t.Helper()
	s, err := model.ReadSafetensors(filepath.Join(goldenDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func openModel(t testing.TB, path string) *model.Model {
	t.Helper()
	m, err := model.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// RealModel opens Gemma 3 270M, or skips t where its file is not on this machine.
func RealModel(t testing.TB) *model.Model {
	t.Helper()
	return openModel(t, RealModelPath(t))
}

// RealModelPath is where Gemma 3 270M is on this machine; t is skipped if it is not.
func RealModelPath(t testing.TB) string {
	t.Helper()
	path := os.Getenv("BERTH_TEST_MODEL")
	if path == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			t.Skipf("no cache directory to look for the real model in: %v", err)
		}
		path = filepath.Join(dir, "berth", realFile)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Skipf("the real model is not at %s: fetch it with `berth pull gemma3-270m`, or set BERTH_TEST_MODEL", path)
	}
	return path
}
