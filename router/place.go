package router

import (
	"cmp"
	"slices"
)

const (
	// loadTokens is the prefill, in tokens, that one request more than the least loaded worker has weighs.
	loadTokens = 256
	// pressureTokens is the prefill, in tokens, that a worker whose pages are all granted weighs more than an empty one.
	pressureTokens = 512
	// keptCandidates is how many candidates a decision remembers.
	keptCandidates = 16
)

// candidate is a worker that could take a request, by the ledger's numbers, and the request's need there.
type candidate struct {
	Worker      string `json:"worker"`
	Incarnation uint64 `json:"incarnation"`
	Pages       uint64 `json:"pages"`     // needed now
	PagesMax    uint64 `json:"pages_max"` // needed by one whole branch of it
	SlotsNeeded uint64 `json:"slots_needed"`
	Capacity    uint64 `json:"capacity"`
	Granted     uint64 `json:"granted"`
	Slots       uint64 `json:"slots"`
	SlotsUsed   uint64 `json:"slots_used"`
	Waiters     int    `json:"waiters"`
	MaxTokens   uint64 `json:"max_tokens"` // longest branch
	Hit         int    `json:"hit"`        // prompt tokens expected in its cache
}

// need is the request's side of a placement.
type need struct {
	Prompt int    `json:"prompt"` // tokens
	Total  int    `json:"total"`  // prompt and the most tokens to generate
	Turn   uint64 `json:"turn"`   // rotates what is equal otherwise
}

// verdict is how a placement came out.
type verdict string

const (
	placed    verdict = "placed"
	busy      verdict = "busy"       // fits somewhere alone, nowhere now
	neverFits verdict = "never_fits" // fits nowhere even alone
	nowhere   verdict = "no_worker"  // there are no candidates
)

// decision is a placement and what it was made from.
type decision struct {
	Verdict  verdict  `json:"verdict"`
	Worker   string   `json:"worker,omitempty"`
	Need     need     `json:"need"`
	Revision uint64   `json:"revision"`
	Scored   []scored `json:"candidates"` // cheapest first, those without room last, at most keptCandidates
	chosen   candidate
}

// scored is a candidate and what it costs, in tokens of prefill.
type scored struct {
	candidate
	Cost float64 `json:"cost"`
	Why  string  `json:"why,omitempty"` // why it is not eligible now
	at   int
}

// place chooses the worker for a request: the least cost = uncached prefill + excess load + KV pressure, the load terms
// always on, so that a hit never draws all requests to one worker. Of equal costs the least granted goes first, then
// they take turns.
func place(candidates []candidate, n need) decision {
	d := decision{Verdict: nowhere, Need: n}
	if len(candidates) == 0 {
		return d
	}
	least := candidates[0].SlotsUsed
	for _, c := range candidates {
		least = min(least, c.SlotsUsed)
	}
	all := make([]scored, len(candidates))
	d.Verdict = neverFits
	for i, c := range candidates {
		all[i] = scored{candidate: c, Cost: cost(c, n, least), Why: c.obstacle(n), at: i}
		if c.alone(n) && d.Verdict == neverFits {
			d.Verdict = busy
		}
	}
	turn := int(n.Turn % uint64(len(all)))
	slices.SortFunc(all, func(a, b scored) int {
		return cmp.Or(
			cmp.Compare(len(a.Why), 0)-cmp.Compare(len(b.Why), 0),
			cmp.Compare(a.Cost, b.Cost),
			cmp.Compare(a.Granted, b.Granted),
			cmp.Compare((a.at-turn+len(all))%len(all), (b.at-turn+len(all))%len(all)),
		)
	})
	if all[0].Why == "" {
		d.Verdict, d.Worker, d.chosen = placed, all[0].Worker, all[0].candidate
	}
	d.Scored = all[:min(len(all), keptCandidates)]
	return d
}

func cost(c candidate, n need, least uint64) float64 {
	pressure := float64(c.Granted+c.Pages) / float64(max(c.Capacity, 1))
	return float64(n.Prompt-c.Hit) + loadTokens*float64(c.SlotsUsed-least) + pressureTokens*pressure
}

// alone says whether the whole request would fit on the empty worker.
func (c candidate) alone(n need) bool {
	return c.PagesMax <= c.Capacity && uint64(n.Total) <= c.MaxTokens && c.Slots > 0
}

// obstacle says why the request cannot start there now, "" if it can. It asks what the ledger will ask.
func (c candidate) obstacle(n need) string {
	switch {
	case !c.alone(n):
		return "does not fit alone"
	case c.Waiters > 0:
		return "admitted requests wait for pages"
	case c.Granted+c.Pages > c.Capacity:
		return "not enough pages"
	case c.SlotsUsed+max(1, c.SlotsNeeded) > c.Slots:
		return "not enough slots"
	}
	return ""
}
