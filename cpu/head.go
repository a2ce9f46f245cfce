package cpu

import (
	"github.com/berthd/berth/model"
	"github.com/berthd/berth/model/sampler"
)

// headRows is the most logits rows that are computed at a time; a step with more outputs takes several turns.
const headRows = 64

// head turns hidden states into what a plan asked for: logits, and chosen tokens.
type head struct {
	device   *Device
	vocab    int
	stride   int // elements from one logits row to the next
	rows     int
	logits   []float32
	samplers []*sampler.Sampler // by worker
	turn     []output           // outputs of the current turn
	result   *model.Result
	task     task
}

func newHead(d *Device) (*head, error) {
	h := &head{device: d, vocab: d.decoder.Vocab, rows: min(d.cfg.MaxRows, headRows)}
	h.stride = (h.vocab + 15) &^ 15
	a := &allocator{memory: d.memory, name: "logits"}
	h.logits = a.floats(h.rows * h.stride)
	for range d.cfg.Threads {
		h.samplers = append(h.samplers, sampler.New(h.vocab))
	}
	h.task.do = h.output
	return h, a.err
}

// finish computes the outputs of b into r.
func (h *head) finish(b *batch, r *model.Result) {
	rows := b.plan.Rows
	r.Step = b.plan.Step
	r.IDs, r.Logprobs, r.Logits = r.IDs[:0], r.Logprobs[:0], r.Logits[:0]
	for i := range rows {
		r.IDs, r.Logprobs = append(r.IDs, -1), append(r.Logprobs, 0)
		var logits []float32
		if rows[i].Logits {
			logits = make([]float32, rows[i].Outputs*h.vocab)
		}
		r.Logits = append(r.Logits, logits)
	}
	h.result = r
	for lo := 0; lo < len(b.output); lo += h.rows {
		h.turn = b.output[lo:min(lo+h.rows, len(b.output))]
		h.device.engine.logits(h.turn, h.logits, h.stride)
		h.device.pool.run(&h.task, len(h.turn))
	}
}

// output hands out one logits row: a copy to who asked for it, then to the sampler, which may scribble on it.
func (h *head) output(i, worker int) {
	o := h.turn[i]
	row := &h.device.batch.plan.Rows[o.row]
	x := h.logits[i*h.stride : i*h.stride+h.vocab]
	if row.Logits {
		copy(h.result.Logits[o.row][o.index*h.vocab:], x)
	}
	if row.Sampling != nil && o.index == row.Outputs-1 {
		h.result.IDs[o.row], h.result.Logprobs[o.row] = h.samplers[worker].Next(x, row.Sampling)
	}
}
