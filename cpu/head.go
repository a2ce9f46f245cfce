package cpu

import (
	"slices"

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
	chooser  chooser            // nil: greedy tokens too are chosen from logits
	full     []output           // outputs whose logits are wanted
	greedy   []output           // outputs of which only the highest logit matters
	ids      []int32            // of a turn of those
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
	if d.decoder.LogitCap == 0 { // capped logits may tie where the others do not
		h.chooser = d.engine.chooser()
	}
	h.full, h.greedy = make([]output, 0, d.cfg.MaxBatchTokens), make([]output, 0, d.cfg.MaxBatchTokens)
	h.ids = make([]int32, h.rows)
	h.task.do = h.output
	return h, a.err
}

// finish computes the outputs of b into r.
func (h *head) finish(b *batch, r *model.Result) {
	rows := b.plan.Rows
	r.Step = b.plan.Step
	r.IDs, r.Logprobs, r.Logits = r.IDs[:0], r.Logprobs[:0], r.Logits[:0]
	r.Scores, r.Guessed = scoreRoom(r.Scores, rows), guessRoom(r.Guessed, rows)
	for i := range rows {
		r.IDs, r.Logprobs = append(r.IDs, -1), append(r.Logprobs, 0)
		var logits []float32
		if rows[i].Logits {
			logits = make([]float32, rows[i].Outputs*h.vocab)
		}
		r.Logits = append(r.Logits, logits)
	}
	h.result = r
	h.sort(b)
	for lo := 0; lo < len(h.full); lo += h.rows {
		h.turn = h.full[lo:min(lo+h.rows, len(h.full))]
		h.device.engine.logits(h.turn, h.logits, h.stride)
		h.device.pool.run(&h.task, len(h.turn))
	}
	for lo := 0; lo < len(h.greedy); lo += h.rows {
		h.turn = h.greedy[lo:min(lo+h.rows, len(h.greedy))]
		h.chooser.choose(h.turn, h.logits, h.ids)
		for i, o := range h.turn {
			h.chose(o, h.ids[i])
		}
	}
}

// scoreRoom makes list as long as the rows' scores, with the room that it has from steps before.
func scoreRoom(list [][]model.Score, rows []model.Row) [][]model.Score {
	list = slices.Grow(list[:0], len(rows))[:len(rows)]
	for i := range rows {
		n := 0
		if rows[i].Scored {
			n = rows[i].Outputs
		}
		list[i] = slices.Grow(list[i][:0], n)[:n]
		for k := range list[i] {
			list[i][k] = model.Score{Top: list[i][k].Top[:0]}
		}
	}
	return list
}

// guessRoom makes list as long as the rows' guesses, with the room that it has.
func guessRoom(list [][]int32, rows []model.Row) [][]int32 {
	list = slices.Grow(list[:0], len(rows))[:len(rows)]
	for i := range rows {
		list[i] = slices.Grow(list[i][:0], rows[i].Guesses)[:rows[i].Guesses]
	}
	return list
}

// sort tells outputs by what they need: logits, the highest alone, or nothing.
func (h *head) sort(b *batch) {
	h.full, h.greedy = h.full[:0], h.greedy[:0]
	for _, o := range b.output {
		row := &b.plan.Rows[o.row]
		sampled := o.samples(row)
		switch {
		case sampled && !row.Logits && !row.Scored && h.chooser != nil && row.Sampling.Plain():
			h.greedy = append(h.greedy, o)
		case sampled || row.Logits || row.Scored && o.index < len(row.Next):
			h.full = append(h.full, o)
		}
	}
}

// samples tells whether a token is chosen at o.
func (o *output) samples(row *model.Row) bool {
	return row.Sampling != nil && o.index >= row.Outputs-1-row.Guesses
}

// chose notes the token chosen at o.
func (h *head) chose(o output, id int32) {
	row := &h.device.batch.plan.Rows[o.row]
	if guess := o.index - (row.Outputs - row.Guesses); guess >= 0 {
		h.result.Guessed[o.row][guess] = id
		return
	}
	h.result.IDs[o.row] = id
}

// output hands out one logits row: a copy to who asked for it, a score of the token that follows, then to the sampler, which
// may scribble on it.
func (h *head) output(i, worker int) {
	o := h.turn[i]
	row := &h.device.batch.plan.Rows[o.row]
	x := h.logits[i*h.stride : i*h.stride+h.vocab]
	softCap(x, h.device.decoder.LogitCap)
	if row.Logits {
		copy(h.result.Logits[o.row][o.index*h.vocab:], x)
	}
	if row.Scored && o.index < len(row.Next) {
		sampler.Score(x, row.Next[o.index], row.Top, &h.result.Scores[o.row][o.index])
	}
	switch sampled := o.samples(row); {
	case sampled && row.Scored:
		score := &h.result.Scores[o.row][o.index]
		h.result.IDs[o.row] = h.samplers[worker].NextScored(x, row.Sampling, row.Top, score)
		h.result.Logprobs[o.row] = score.Logprob
	case sampled:
		id, logprob := h.samplers[worker].Next(x, row.Sampling)
		h.chose(o, id)
		if row.Guesses == 0 { // several outputs of a row must not write one place at once
			h.result.Logprobs[o.row] = logprob
		}
	}
}
