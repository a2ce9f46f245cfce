package model

import "fmt"

// Span is a half-open run of heads, rows or columns.
type Span struct{ Lo, Hi int }

// Len is the length of s.
func (s Span) Len() int { return s.Hi - s.Lo }

// Share is what one rank of a tensor-parallel group has of a model. Rows of Q, K, V, Gate, Up, Embedding and Output are
// cut, and columns of O and Down: a rank's products of those two are one term of a sum over the ranks.
type Share struct {
	Rank, Ranks int
	Heads       Span // query heads
	KVHeads     Span // the key heads that they look at; some ranks have the same one where there are more ranks
	// Mix is the columns of O: those of the rank's heads, widened to whole blocks of the weights. What the rank's heads
	// do not fill of it must be 0, so that a block which two ranks have counts once.
	Mix         Span
	FeedForward Span // rows of a dense layer's Gate and Up, columns of its Down; whole blocks
	Experts     Span // none in dense layers; whole ones
	Vocab       Span // rows of Embedding and Output; whole groups of 8
}

// MixSkip is how many columns of Mix lie before those of the rank's heads.
func (s *Share) MixSkip(headDim int) int { return s.Heads.Lo*headDim - s.Mix.Lo }

// ShareError says that a model has too few of something for every rank to get one.
type ShareError struct {
	Ranks int
	What  string // of which there are too few
	Have  int
}

func (e *ShareError) Error() string {
	return fmt.Sprintf("%d tensor-parallel ranks: the model has %d %s to share, one a rank at least: give from 1 to %d ranks",
		e.Ranks, e.Have, e.What, e.Have)
}

// vocabUnit and forwardUnit are the fewest rows of the vocabulary and columns of Down that are cut off: what kernels take
// at once.
const (
	vocabUnit   = 8
	forwardUnit = 32
)

// Shares cuts m for a number of ranks, as evenly as whole units allow. The error is a *ShareError.
func (m *Model) Shares(ranks int) ([]Share, error) {
	mixBlock, downBlock := 1, forwardUnit
	for i := range m.Weights {
		mixBlock = max(mixBlock, m.Weights[i].O.Type.elements()) // sizes are 1, 32 and 256: the largest holds the others
		if m.Experts == 0 {
			downBlock = max(downBlock, m.Weights[i].Down.Type.elements())
		}
	}
	forward := ShareError{ranks, fmt.Sprintf("blocks of %d feed-forward columns", downBlock), units(m.FeedForward, downBlock)}
	if m.Experts > 0 {
		forward = ShareError{ranks, "experts", m.Experts}
	}
	for _, c := range []ShareError{
		{ranks, "query heads", m.Heads},
		forward,
		{ranks, fmt.Sprintf("groups of %d tokens", vocabUnit), units(m.Vocab, vocabUnit)},
	} {
		if ranks < 1 || c.Have < ranks {
			return nil, &c
		}
	}
	list := make([]Share, ranks)
	for r := range list {
		s := &list[r]
		s.Rank, s.Ranks = r, ranks
		s.Heads, s.KVHeads = m.heads(r, ranks)
		lo, hi := s.Heads.Lo*m.HeadDim, s.Heads.Hi*m.HeadDim
		s.Mix = Span{lo / mixBlock * mixBlock, units(hi, mixBlock) * mixBlock}
		if m.Experts > 0 {
			s.FeedForward, s.Experts = Span{0, m.FeedForward}, part(m.Experts, 1, r, ranks)
		} else {
			s.FeedForward = part(m.FeedForward, downBlock, r, ranks)
		}
		s.Vocab = part(m.Vocab, vocabUnit, r, ranks)
	}
	return list, nil
}

// heads are a rank's query heads, and the key heads that they look at. Query heads of one key head stay together unless
// there are fewer key heads than ranks; then each key head has some ranks, which divide its query heads.
func (d *Decoder) heads(rank, ranks int) (query, key Span) {
	share := d.Heads / d.KVHeads
	if ranks <= d.KVHeads {
		key = part(d.KVHeads, 1, rank, ranks)
		return Span{key.Lo * share, key.Hi * share}, key
	}
	for h := range d.KVHeads {
		if of := part(ranks, 1, h, d.KVHeads); rank < of.Hi {
			query = part(share, 1, rank-of.Lo, of.Len())
			return Span{h*share + query.Lo, h*share + query.Hi}, Span{h, h + 1}
		}
	}
	panic("heads: every rank has a key head")
}

// part is the rank-th of so many even parts of [0, n), in whole units; the last unit may be cut short.
func part(n, unit, rank, ranks int) Span {
	u := units(n, unit)
	return Span{min(u*rank/ranks*unit, n), min(u*(rank+1)/ranks*unit, n)}
}

func units(n, unit int) int { return (n + unit - 1) / unit }

// Shard is the part of m that s stands for: a model of its own whose sizes are the rank's, over the same bytes.
func (m *Model) Shard(s Share) *Model {
	out := &Model{File: m.File, Decoder: m.Decoder, Share: s, OutputNorm: m.OutputNorm}
	out.Heads, out.KVHeads = s.Heads.Len(), s.KVHeads.Len()
	out.FeedForward, out.Vocab = s.FeedForward.Len(), s.Vocab.Len() // Experts stays: routers are whole
	out.Embedding = m.Embedding.rows(s.Vocab)
	out.Output = out.Embedding
	if m.Output != m.Embedding {
		out.Output = m.Output.rows(s.Vocab)
	}
	of := func(heads Span) Span { return Span{heads.Lo * m.HeadDim, heads.Hi * m.HeadDim} }
	q, kv := of(s.Heads), of(s.KVHeads)
	for _, w := range m.Weights { // norms, routers and what is added after a sum stay whole
		w.Q, w.K, w.V = w.Q.rows(q), w.K.rows(kv), w.V.rows(kv)
		w.QBias, w.KBias, w.VBias = w.QBias.floats().columns(q), w.KBias.floats().columns(kv), w.VBias.floats().columns(kv)
		w.Sinks = w.Sinks.floats().columns(s.Heads)
		w.O = w.O.columns(s.Mix)
		if w.Router != nil {
			w.Experts = w.Experts[s.Experts.Lo:s.Experts.Hi]
		} else {
			w.Gate, w.Up = w.Gate.rows(s.FeedForward), w.Up.rows(s.FeedForward)
			w.Down = w.Down.columns(s.FeedForward)
		}
		out.Weights = append(out.Weights, w)
	}
	return out
}

// RankLayout is how a rank lays out its pages: KVLayout with the key heads of the rank that has most, so that page ids
// and page bytes are the same on all.
func (d *Decoder) RankLayout(ranks int) KVLayout {
	l := d.KVLayout()
	l.KVHeads = units(d.KVHeads, ranks)
	return l
}
