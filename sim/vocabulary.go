package sim

import (
	"fmt"
	"strings"

	workerv1 "github.com/berthd/berth/api/worker/v1"
	"github.com/berthd/berth/model/tokenizer"
)

// card is a vocabulary in which every token reads as its number, so that a text says which tokens it was made of.
func card() *workerv1.Card {
	t := &workerv1.Tokenizer{Kind: "llama", Bos: 1, Eos: endToken, Unknown: 0, Padding: -1, End: []int32{endToken}}
	for id := range int32(vocabulary) {
		text, kind := word(id), tokenizer.Normal
		if id < firstToken {
			text, kind = fmt.Sprintf("<%d>", id), tokenizer.Control
		}
		t.Tokens, t.Scores, t.Types = append(t.Tokens, text), append(t.Scores, 0), append(t.Types, byte(kind))
	}
	return &workerv1.Card{Tokenizer: t}
}

func word(id int32) string { return fmt.Sprintf("%d.", id) }

// read is the text of an answer's tokens; the end token has none.
func read(ids []int32) string {
	var b strings.Builder
	for _, id := range ids {
		if id >= firstToken {
			b.WriteString(word(id))
		}
	}
	return b.String()
}
