package cpu

import (
	"math"
	"unsafe"

	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
)

// attendance is one layer's attention over the batch.
type attendance struct {
	layer model.Layer
	place model.Place
	sinks []float32 // by head; nil for none
}

// attention rotates q and k, writes k and v to their pages, and mixes values into r.mix.
func (r *reference) attention(layer int) {
	m, b := r.m, r.batch
	r.att = attendance{layer: m.Layers[layer], place: r.device.pages.layout.Places[layer]}
	if s := m.Weights[layer].Sinks; s != nil {
		r.att.sinks = make([]float32, s.Cols())
		model.Dequantise(s.Type, s.Data, r.att.sinks)
	}
	half := m.HeadDim / 2
	cos, sin := make([]float32, half), make([]float32, half)
	for t, pos := range b.pos {
		rotation(&r.att.layer, m.HeadDim, pos, cos, sin)
		for h := range m.Heads {
			rotate(r.q[(t*m.Heads+h)*m.HeadDim:][:m.HeadDim], cos, sin)
		}
		table := b.plan.Rows[b.row[t]].Pages[r.att.place.Group]
		for h := range m.KVHeads {
			k := r.k[(t*m.KVHeads+h)*m.HeadDim:][:m.HeadDim]
			rotate(k, cos, sin)
			at := r.device.pages.key(table, r.att.place, h, int(pos))
			r.store(at, k)
			r.store(unsafe.Add(at, r.device.pages.valueOffset()), r.v[(t*m.KVHeads+h)*m.HeadDim:][:m.HeadDim])
		}
	}
	r.device.pool.run(&r.heed, len(b.ids))
}

// rotate turns pairs (i, i + n/2) of x by their angles.
func rotate(x, cos, sin []float32) {
	n := len(x) / 2
	for i := range n {
		a, b := x[i], x[i+n]
		x[i] = float32(a*cos[i]) - float32(b*sin[i])
		x[i+n] = float32(b*cos[i]) + float32(a*sin[i])
	}
}

// store rounds a vector to the page's element type.
func (r *reference) store(at unsafe.Pointer, x []float32) {
	if r.device.pages.elem == 4 {
		copy(unsafe.Slice((*float32)(at), len(x)), x)
		return
	}
	for i, h := range unsafe.Slice((*uint16)(at), len(x)) {
		_ = h
		unsafe.Slice((*uint16)(at), len(x))[i] = model.FloatToHalf(x[i])
	}
}

// load is element i of a vector in a page.
func (r *reference) load(at unsafe.Pointer, i int) float32 {
	if r.device.pages.elem == 4 {
		return *(*float32)(unsafe.Add(at, 4*i))
	}
	return model.HalfToFloat(*(*uint16)(unsafe.Add(at, 2*i)))
}

// attend computes one token: softmax(q·k · scale) over the positions that its layer sees, times their values.
func (r *reference) attend(t, _ int) {
	m, b := r.m, r.batch
	table := b.plan.Rows[b.row[t]].Pages[r.att.place.Group]
	last := int(b.pos[t])
	first := firstPosition(kvpool.Group{Kind: r.att.layer.Kind, Window: r.att.layer.Window}, last)
	scores := make([]float32, last+1-first, last+2-first)
	for h := range m.Heads {
		kv := h / (m.Heads / m.KVHeads)
		q := r.q[(t*m.Heads+h)*m.HeadDim:][:m.HeadDim]
		for p := range scores {
			at := r.device.pages.key(table, r.att.place, kv, first+p)
			sum := float32(0)
			for i, v := range q {
				sum += float32(v * r.load(at, i))
			}
			scores[p] = sum * m.QueryScale
		}
		softCap(scores, r.att.layer.ScoreCap)
		if r.att.sinks != nil {
			softmax(append(scores, r.att.sinks[h]))
		} else {
			softmax(scores)
		}
		out := r.mix[t*m.Share.Mix.Len()+m.Share.MixSkip(m.HeadDim)+h*m.HeadDim:][:m.HeadDim]
		clear(out)
		for p, weight := range scores {
			at := unsafe.Add(r.device.pages.key(table, r.att.place, kv, first+p), r.device.pages.valueOffset())
			for i := range out {
				out[i] += float32(weight * r.load(at, i))
			}
		}
	}
}

// softCap is limit · tanh(x / limit); a limit of 0 leaves x as it is.
func softCap(x []float32, limit float32) {
	if limit == 0 {
		return
	}
	for i, v := range x {
		x[i] = limit * float32(math.Tanh(float64(v/limit)))
	}
}

func softmax(x []float32) {
	top := float32(math.Inf(-1))
	for _, v := range x {
		top = max(top, v)
	}
	sum := float32(0)
	for i, v := range x {
		x[i] = float32(math.Exp(float64(v - top)))
		sum += x[i]
	}
	for i := range x {
		x[i] /= sum
	}
}
