//go:build cgo && amd64

package cpu

import (
	"sync/atomic"
	"unsafe"

	"github.com/berthd/berth/model"
)

// packed is a weight matrix in groups of 8 rows, in the device's memory.
type packed struct {
	kind       model.Type
	rows, cols int
	groups     int // ⌈rows / 8⌉; missing rows are zero
	group      int // bytes of one
	format     format
	level      level
	w          unsafe.Pointer
}

// packer copies tensors into the device's layout, 8 rows at a time, on all threads.
type packer struct {
	allocator
	pool       *pool
	dequantise bool
	level      level
	task       task
	tensor     *model.Tensor
	into       packed
	scratch    [][]float32 // by worker: 8 dequantised rows
	raw        [][]byte    // by worker: 8 rows as the file has them
	fault      atomic.Pointer[error]
}

func newPacker(d *rank) *packer {
	p := &packer{allocator: allocator{memory: d.memory, name: "weights"}, pool: d.pool, dequantise: d.cfg.Dequantise}
	p.level = bestLevel()
	p.scratch, p.raw = make([][]float32, d.cfg.Threads), make([][]byte, d.cfg.Threads)
	p.task.do = p.pack
	return p
}

// groupsAtATime is how many groups a chunk of packing has.
const groupsAtATime = 64

// matrix packs a weight matrix.
func (p *packer) matrix(t *model.Tensor) packed {
	kind := t.Type
	if p.dequantise {
		kind = model.F32
	}
	m := packed{kind: kind, rows: t.Rows(), cols: t.Cols(), groups: (t.Rows() + 7) / 8, format: formatOf(kind)}
	m.level, m.group = p.level, groupBytes(kind, m.cols)
	m.w = p.block(m.groups * m.group)
	if p.err != nil {
		return m
	}
	p.tensor, p.into = t, m
	p.pool.run(&p.task, (m.groups+groupsAtATime-1)/groupsAtATime)
	if fault := p.fault.Load(); fault != nil && p.err == nil {
		p.err = *fault
	}
	return m
}

// pack is a chunk of packing. The file may be cut short meanwhile, and C must not meet that: rows are copied first.
func (p *packer) pack(chunk, worker int) {
	if err := model.Guard("weights", func() { p.packGroups(chunk, worker) }); err != nil {
		p.fault.CompareAndSwap(nil, &err)
	}
}

func (p *packer) packGroups(chunk, worker int) {
	m, t := &p.into, p.tensor
	for g := chunk * groupsAtATime; g < min((chunk+1)*groupsAtATime, m.groups); g++ {
		n := min(8, m.rows-g*8)
		group := unsafe.Add(m.w, g*m.group)
		if m.kind == t.Type {
			bytes := len(t.Row(g * 8))
			if len(p.raw[worker]) < 8*bytes {
				p.raw[worker] = make([]byte, 8*bytes)
			}
			rows := p.raw[worker]
			for r := range n {
				copy(rows[r*bytes:], t.Row(g*8+r))
			}
			packGroup(m.kind, unsafe.Pointer(&rows[0]), bytes, n, group, m.cols)
			continue
		}
		if len(p.scratch[worker]) < 8*m.cols {
			p.scratch[worker] = make([]float32, 8*m.cols)
		}
		rows := p.scratch[worker]
		for r := range n {
			model.Dequantise(t.Type, t.Row(g*8+r), rows[r*m.cols:(r+1)*m.cols])
		}
		packGroup(model.F32, unsafe.Pointer(&rows[0]), 4*m.cols, n, group, m.cols)
	}
}

// vector copies a norm's weights as f32; nil stays nil.
func (p *packer) vector(t *model.Tensor) unsafe.Pointer {
	if t == nil {
		return nil
	}
	w := p.floats(t.Cols())
	if p.err != nil {
		return nil
	}
	if err := model.Guard("weights", func() { model.Dequantise(t.Type, t.Data, w) }); err != nil {
		p.err = err
		return nil
	}
	return unsafe.Pointer(&w[0])
}

// packedLayer is model.LayerWeights in the device's layout.
type packedLayer struct {
	attnNorm, postAttnNorm, ffnNorm, postFFNNorm, qNorm, kNorm unsafe.Pointer
	qBias, kBias, vBias, oBias, sinks                          unsafe.Pointer

	q, k, v, o    packed
	packedForward // of a dense layer
	router        packed
	routerBias    []float32
	experts       []packedForward // the rank's
}

func (p *packer) layer(w *model.LayerWeights) packedLayer {
	out := packedLayer{
		attnNorm: p.vector(w.AttnNorm), postAttnNorm: p.vector(w.PostAttnNorm),
		ffnNorm: p.vector(w.FFNNorm), postFFNNorm: p.vector(w.PostFFNNorm),
		qNorm: p.vector(w.QNorm), kNorm: p.vector(w.KNorm),
		qBias: p.vector(w.QBias), kBias: p.vector(w.KBias), vBias: p.vector(w.VBias),
		oBias: p.vector(w.OBias), sinks: p.vector(w.Sinks),
		q: p.matrix(w.Q), k: p.matrix(w.K), v: p.matrix(w.V), o: p.matrix(w.O),
	}
	if w.Router == nil {
		out.packedForward = p.forward(&w.FeedForward)
	} else {
		p.mixtureOf(w, &out)
	}
	return out
}
