package worker

import (
	"bytes"
	"slices"
	"testing"

	"github.com/berthd/berth/model"
)

// Every rule of a vocabulary that a file has stands in its card.
func TestCard(t *testing.T) {
	for _, c := range []struct {
		file, kind, pre, end string
		merges               int
		addBOS               bool
	}{
		{"gemma3", "llama", "default", "<end_of_turn>", 0, true},
		{"llama", "gpt2", "llama-bpe", "<|eot_id|>", 506, true},
		{"qwen3", "gpt2", "qwen2", "<|im_end|>", 445, false},
	} {
		t.Run(c.file, func(t *testing.T) {
			f, err := model.OpenFile("../testdata/golden/tiny/" + c.file + "/model-q8_0.gguf")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			card := NewCard(f, "")
			k := card.GetTokenizer()
			if k.GetKind() != c.kind || k.GetPre() != c.pre || len(k.GetMerges()) != c.merges || k.GetAddBos() != c.addBOS {
				t.Errorf("kind %q, pre %q, %d merges, bos %v", k.GetKind(), k.GetPre(), len(k.GetMerges()), k.GetAddBos())
			}
			if !slices.ContainsFunc(k.GetEnd(), func(id int32) bool { return k.GetTokens()[id] == c.end }) {
				t.Errorf("%q is not among the ends %v", c.end, k.GetEnd())
			}
			if card.GetChatTemplate() == "" {
				t.Error("the file's chat template was left out")
			}
			print, err := Fingerprint(card)
			again, _ := Fingerprint(NewCard(f, ""))
			if err != nil || !bytes.Equal(print, again) {
				t.Errorf("two cards of one file differ: %v", err)
			}
		})
	}
}
