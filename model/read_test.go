package model

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOnlyRegularFilesAreRead: a pipe in the place of any file of a folder is refused, not waited for; a sparse file of
// hundreds of gigabytes is refused before it is read.
func TestOnlyRegularFilesAreRead(t *testing.T) {
	for _, name := range []string{"config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "chat_template.jinja"} {
		for _, what := range []string{"pipe", "sparse"} {
			t.Run(name+" "+what, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "testdata", "golden", "tiny", "gemma3"))); err != nil {
					t.Fatal(err)
				}
				path := filepath.Join(dir, name)
				if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
					t.Fatal(err)
				}
				if what == "pipe" {
					if err := unix.Mkfifo(path, 0o600); err != nil {
						t.Fatal(err)
					}
				} else {
					if err := os.WriteFile(path, nil, 0o600); err != nil {
						t.Fatal(err)
					}
					if err := os.Truncate(path, 200<<30); err != nil {
						t.Fatal(err)
					}
				}
				m, err := Open(dir)
				if err == nil {
					t.Error(m.Close())
				}
				var fault *WeightsError
				if !errors.As(err, &fault) {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

// TestAFileCutShortWhileItIsRead: what is gone is said, and the process goes on.
func TestAFileCutShortWhileItIsRead(t *testing.T) {
	raw, err := os.ReadFile("../testdata/golden/tiny/gemma3/model-q8_0.gguf")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "model.gguf")
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	var fault *WeightsError
	if err := Guard(path, func() { m.Revision() }); !errors.As(err, &fault) {
		t.Errorf("%v", err)
	}
	defer func() {
		if r := recover(); r != "another" {
			t.Errorf("a panic of another kind is %v", r)
		}
	}()
	_ = Guard(path, func() { panic("another") })
}

// TestRevisionKnowsHowWeightsAreUsed: models of the same weights and another rope or window are others: their keys and values
// are not each other's.
func TestRevisionKnowsHowWeightsAreUsed(t *testing.T) {
	m, err := Open("../testdata/golden/tiny/gemma3/model-q8_0.gguf")
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	was := m.Revision()
	if m.Revision() != was {
		t.Error("one model has two revisions")
	}
	for what, change := range map[string]func(*Decoder){
		"rope base":    func(d *Decoder) { d.Layers[1].RopeBase *= 2 },
		"rope scaling": func(d *Decoder) { d.Layers[1].RopeScale /= 8 },
		"factors":      func(d *Decoder) { d.Layers[1].RopeFactors = []float32{2} },
		"window":       func(d *Decoder) { d.Layers[0].Window++ },
		"epsilon":      func(d *Decoder) { d.Epsilon *= 2 },
	} {
		other := *m
		other.Layers = slices.Clone(m.Layers)
		change(&other.Decoder)
		if other.Revision() == was {
			t.Errorf("another %s, and the same revision", what)
		}
	}
	longer := *m
	longer.Context *= 2
	if longer.Revision() != was {
		t.Error("a length has another revision")
	}
}
