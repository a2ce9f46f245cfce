package worker

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/model"
	"github.com/berthd/berth/model/tokenizer"
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
			checkFolderCard(t, c.file, card)
			if err := CheckCard(card); err != nil {
				t.Error(err)
			}
			k.Pre, k.Kind = "unheard-of", "gpt2"
			if err := CheckCard(card); !errors.Is(err, tokenizer.ErrVocabulary) {
				t.Errorf("an unknown cut of words: %v", err)
			}
			card = NewCard(f, "")
			print, err := Fingerprint(card)
			again, _ := Fingerprint(NewCard(f, ""))
			if err != nil || !bytes.Equal(print, again) {
				t.Errorf("two cards of one file differ: %v", err)
			}
		})
	}
}

// checkFolderCard wants the card of the same model's folder to be the file's, but for scores: those of a folder are the
// ranks of its merges, and merge in the same order.
func checkFolderCard(t *testing.T, name string, want *workerv1.Card) {
	t.Helper()
	f, err := model.OpenFile("../testdata/golden/tiny/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ignored := protocmp.IgnoreFields(&workerv1.Tokenizer{}, "scores")
	if name == "gemma3" { // a folder has no name for its cut of words, and does not tell user-defined pieces from others
		ignored = protocmp.IgnoreFields(&workerv1.Tokenizer{}, "scores", "pre", "types")
	}
	if d := cmp.Diff(want, NewCard(f, ""), protocmp.Transform(), ignored); d != "" {
		t.Errorf("the folder's card differs:\n%s", d)
	}
}
