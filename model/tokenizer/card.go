package tokenizer

import workerv1 "github.com/berthd/berth/api/worker/v1"

// SpecOf is the vocabulary in a worker's card, in the form that New takes.
func SpecOf(t *workerv1.Tokenizer) Spec {
	s := Spec{
		Kind: t.GetKind(), Pre: t.GetPre(), Tokens: t.GetTokens(), Scores: t.GetScores(), Merges: t.GetMerges(),
		BOS: t.GetBos(), EOS: t.GetEos(), Unknown: t.GetUnknown(), AddBOS: t.GetAddBos(), AddEOS: t.GetAddEos(),
		AddSpacePrefix: t.GetAddSpacePrefix(), End: t.GetEnd(),
	}
	for _, v := range t.GetTypes() {
		s.Types = append(s.Types, Type(v))
	}
	return s
}
