package cpu

import (
	"fmt"

	"github.com/berthd/berth/kvpool"
	"github.com/berthd/berth/model"
)

// check says what is wrong with a plan, before anything of it runs: a plan that passes can't make a kernel touch memory
// that is not its own.
func (d *Device) check(p *model.Plan) error {
	if len(p.Rows) == 0 || len(p.Rows) > d.cfg.MaxRows {
		return fmt.Errorf("%d rows: want 1 to %d", len(p.Rows), d.cfg.MaxRows)
	}
	if n := p.Tokens(); n > d.cfg.MaxBatchTokens {
		return fmt.Errorf("%d tokens: want at most %d", n, d.cfg.MaxBatchTokens)
	}
	for r := range p.Rows {
		row := &p.Rows[r]
		if err := d.checkRow(row); err != nil {
			return fmt.Errorf("row %d: %w", r, err)
		}
		if err := d.checkPages(row); err != nil {
			return fmt.Errorf("row %d: %w", r, err)
		}
	}
	return nil
}

func (d *Device) checkRow(row *model.Row) error {
	n := len(row.Tokens)
	switch {
	case n == 0 || row.Start < 0 || row.Start+n > d.decoder.Context:
		return fmt.Errorf("%d tokens from position %d: want at least one, within the context of %d", n, row.Start,
			d.decoder.Context)
	case row.Outputs < 0 || row.Outputs > n:
		return fmt.Errorf("%d outputs of %d tokens", row.Outputs, n)
	case row.Guesses != 0 && (row.Outputs != row.Guesses+1 || row.Sampling == nil || !row.Sampling.Plain() || row.Scored):
		return fmt.Errorf("%d guesses with %d outputs: want one more, plain sampling, and no scores", row.Guesses, row.Outputs)
	case row.Outputs == 0 && (row.Sampling != nil || row.Logits):
		return fmt.Errorf("sampling or logits without an output")
	}
	for _, id := range row.Tokens {
		if id < 0 || int(id) >= d.decoder.Vocab {
			return fmt.Errorf("token %d of a vocabulary of %d", id, d.decoder.Vocab)
		}
	}
	if row.Sampling == nil {
		return nil
	}
	return d.checkSampling(row.Sampling)
}

// checkSampling looks at every id that the sampler will index by.
func (d *Device) checkSampling(s *model.Sampling) error {
	for _, ids := range [][]int32{s.Banned, s.Prompt, s.Output} {
		for _, id := range ids {
			if id < 0 || int(id) >= d.decoder.Vocab {
				return fmt.Errorf("sampling names token %d of a vocabulary of %d", id, d.decoder.Vocab)
			}
		}
	}
	for _, b := range s.LogitBias {
		if b.ID < 0 || int(b.ID) >= d.decoder.Vocab {
			return fmt.Errorf("sampling biases token %d of a vocabulary of %d", b.ID, d.decoder.Vocab)
		}
	}
	if words := (d.decoder.Vocab + 63) / 64; s.Mask != nil && len(s.Mask) < words {
		return fmt.Errorf("sampling mask of %d words: want %d", len(s.Mask), words)
	}
	return nil
}

// checkPages looks at every page that the row's attention reads or writes.
func (d *Device) checkPages(row *model.Row) error {
	groups := d.engine.layout.Groups
	if len(row.Pages) != len(groups) {
		return fmt.Errorf("pages for %d layer groups: want %d", len(row.Pages), len(groups))
	}
	end := (row.Start + len(row.Tokens) - 1) / d.cfg.BlockSize
	for g, table := range row.Pages {
		if len(table) <= end {
			return fmt.Errorf("layer group %d has %d blocks: want %d", g, len(table), end+1)
		}
		first := firstPosition(groups[g], row.Start) / d.cfg.BlockSize
		for block := first; block <= end; block++ {
			if page := table[block]; page < 0 || int(page) >= d.cfg.Pages {
				return fmt.Errorf("layer group %d, block %d: page %d of %d", g, block, page, d.cfg.Pages)
			}
		}
	}
	return nil
}

// firstPosition is the first position that attention at pos reads.
func firstPosition(g kvpool.Group, pos int) int {
	if g.Kind == kvpool.Full {
		return 0
	}
	return max(0, pos-g.Window+1)
}
