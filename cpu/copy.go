package cpu

import "github.com/berthd/berth/model"

// copyWeights is m with tensors of its own, so that the file may be closed.
func copyWeights(m *model.Model) *model.Model {
	seen := map[*model.Tensor]*model.Tensor{}
	own := func(t *model.Tensor) *model.Tensor {
		if t == nil || seen[t] != nil {
			return seen[t]
		}
		seen[t] = t.Clone()
		return seen[t]
	}
	out := &model.Model{Decoder: m.Decoder, Share: m.Share}
	out.Embedding, out.OutputNorm, out.Output = own(m.Embedding), own(m.OutputNorm), own(m.Output)
	forward := func(f *model.FeedForward) model.FeedForward {
		return model.FeedForward{
			Gate: own(f.Gate), Up: own(f.Up), Down: own(f.Down),
			GateBias: own(f.GateBias), UpBias: own(f.UpBias), DownBias: own(f.DownBias),
		}
	}
	for i := range m.Weights {
		l := &m.Weights[i]
		var experts []model.FeedForward
		for e := range l.Experts {
			experts = append(experts, forward(&l.Experts[e]))
		}
		out.Weights = append(out.Weights, model.LayerWeights{
			AttnNorm: own(l.AttnNorm), PostAttnNorm: own(l.PostAttnNorm),
			FFNNorm: own(l.FFNNorm), PostFFNNorm: own(l.PostFFNNorm),
			QNorm: own(l.QNorm), KNorm: own(l.KNorm),
			Q: own(l.Q), K: own(l.K), V: own(l.V), O: own(l.O),
			QBias: own(l.QBias), KBias: own(l.KBias), VBias: own(l.VBias),
			Sinks: own(l.Sinks), OBias: own(l.OBias),
			FeedForward: forward(&l.FeedForward), Router: own(l.Router), RouterBias: own(l.RouterBias), Experts: experts,
		})
	}
	return out
}
