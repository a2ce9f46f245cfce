package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/cmd/flags"
	"github.com/berthd/berth/model"
)

const tiny = "../../testdata/golden/tiny/gemma3/model-q8_0.gguf"

func tinyConfig(t *testing.T, path string) *config {
	t.Helper()
	c := &config{Model: path, Threads: 1, TP: 1, KVDtype: "f16", WeightsDtype: "file", BlockSize: 16, MaxBatchTokens: 32, MaxSeqs: 4,
		Device: "cpu"}
	c.KVMemory.bytes = 4 << 20
	return c
}

func discard() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// TestALoadingModelCanBeStopped: what a signal ends ends at once, however long the model takes.
func TestALoadingModelCanBeStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	began := time.Now()
	if _, err := loadUntil(ctx, tinyConfig(t, tiny), discard()); err != nil && !errors.Is(err, errStopped) {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestAPipeIsNoModel: a file that nobody writes to is refused, not waited for.
func TestAPipeIsNoModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, "/dev/zero"} {
		var usage *flags.UsageError
		_, err := loadUntil(t.Context(), tinyConfig(t, path), discard())
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), "WGT-001") {
			t.Errorf("%s: %v", path, err)
		}
	}
	c := tinyConfig(t, tiny)
	c.ChatTemplate = path
	if _, err := loadUntil(t.Context(), c, discard()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a pipe as chat template: %v", err)
	}
}

// TestMaxModelLenBeyondTheModel: more than the model has is refused, with what it has.
func TestMaxModelLenBeyondTheModel(t *testing.T) {
	c := tinyConfig(t, tiny)
	c.MaxModelLen = 1_000_000
	var sizing *SizingError
	if _, err := load(c, discard()); !errors.As(err, &sizing) || !strings.Contains(err.Error(), "--max-model-len 1000000: the model has ") {
		t.Errorf("%v", err)
	}
	c.MaxModelLen = 8
	l, err := load(c, discard())
	if err != nil {
		t.Fatal(err)
	}
	defer l.device.Close()
	if l.info.MaxModelLen != 8 {
		t.Errorf("%d", l.info.MaxModelLen)
	}
}

// TestAModelOfNoNumbersIsRefused: a last norm whose weights are NaN makes all logits NaN.
func TestAModelOfNoNumbersIsRefused(t *testing.T) {
	m, err := model.Open(tiny)
	if err != nil {
		t.Fatal(err)
	}
	norm := m.OutputNorm
	raw, err := os.ReadFile(tiny)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(raw), string(norm.Data))
	if at < 0 || norm.Type != model.F32 {
		t.Fatal("the norm is not where it is looked for")
	}
	for i := range norm.Data {
		raw[at+i] = byte(math.Float32bits(float32(math.NaN())) >> (8 * (i % 4)))
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(tinyConfig(t, path), discard()); err == nil || !strings.Contains(err.Error(), "WGT-001") || !strings.Contains(err.Error(), "no numbers") {
		t.Errorf("%v", err)
	}
}
