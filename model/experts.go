package model

import "fmt"

// bindDense finds the feed-forward part of layer i.
func (m *Model) bindDense(w *tensorFinder, arch architecture, i int) FeedForward {
	name := func(s string) string { return fmt.Sprintf("blk.%d.%s.weight", i, s) }
	f := FeedForward{Down: w.find(name("ffn_down"), m.FeedForward, m.Hidden)}
	if arch.fused { // gate above up
		both := w.find(name("ffn_up"), m.Hidden, 2*m.FeedForward)
		if w.err == nil {
			f.Gate = both.rows(Span{0, m.FeedForward})
			f.Up = both.rows(Span{m.FeedForward, 2 * m.FeedForward})
		}
		return f
	}
	f.Gate, f.Up = w.find(name("ffn_gate"), m.Hidden, m.FeedForward), w.find(name("ffn_up"), m.Hidden, m.FeedForward)
	return f
}

// bindExperts finds the router and the experts of layer i. GGUF has a kind of matrix of all experts in one tensor, or, in
// older files and in those that stand for a folder, one for each.
func (m *Model) bindExperts(w *tensorFinder, arch architecture, i int, l *LayerWeights) {
	name := func(s, kind string) string { return fmt.Sprintf("blk.%d.%s.%s", i, s, kind) }
	l.Router = w.find(name("ffn_gate_inp", "weight"), m.Hidden, m.Experts)
	if arch.biases {
		l.RouterBias = w.find(name("ffn_gate_inp", "bias"), m.Experts)
	}
	if w.err != nil {
		return
	}
	l.Experts = make([]FeedForward, m.Experts)
	matrix := func(part string, cols, rows int, of func(*FeedForward) **Tensor) {
		if _, apart := w.file.Tensor(name(part+".0", "weight")); apart {
			for e := range l.Experts {
				*of(&l.Experts[e]) = w.find(name(fmt.Sprintf("%s.%d", part, e), "weight"), cols, rows)
			}
			return
		}
		all := w.find(name(part+"_exps", "weight"), cols, rows, len(l.Experts))
		for e := range l.Experts {
			if w.err == nil {
				*of(&l.Experts[e]) = all.matrix(e)
			}
		}
	}
	matrix("ffn_gate", m.Hidden, m.FeedForward, func(f *FeedForward) **Tensor { return &f.Gate })
	matrix("ffn_up", m.Hidden, m.FeedForward, func(f *FeedForward) **Tensor { return &f.Up })
	matrix("ffn_down", m.FeedForward, m.Hidden, func(f *FeedForward) **Tensor { return &f.Down })
	if !arch.biases {
		return
	}
	gate := w.find(name("ffn_gate_exps", "bias"), m.FeedForward, len(l.Experts))
	up := w.find(name("ffn_up_exps", "bias"), m.FeedForward, len(l.Experts))
	down := w.find(name("ffn_down_exps", "bias"), m.Hidden, len(l.Experts))
	for e := range l.Experts {
		if w.err == nil {
			f := &l.Experts[e]
			f.GateBias, f.UpBias, f.DownBias = gate.vector(e), up.vector(e), down.vector(e)
		}
	}
}
