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
	// Of the share group, pages on all workers.
	Cap     uint64 `json:"cap,omitempty"`     // 0: none
	Claimed uint64 `json:"claimed,omitempty"` // by its grants and lives
	Rise    uint64 `json:"rise,omitempty"`    // of that, with this request
	Life    uint64 `json:"life,omitempty"`    // of the request, at most
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
	overCap   verdict = "over_cap"   // fits alone, but never under the share group's cap
	capFull   verdict = "cap_full"   // fits under the cap, but not beside what lives of the share group
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
		d.Verdict = hopefuller(d.Verdict, c.hope(n))
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

// hope is the verdict on a candidate, were it the only one and empty.
func (c candidate) hope(n need) verdict {
	switch {
	case !c.alone(n):
		return neverFits
	case c.Cap > 0 && c.Life > c.Cap:
		return overCap
	case c.capped():
		return capFull
	}
	return busy
}

// hopefuller is the one that says more for waiting.
func hopefuller(a, b verdict) verdict {
	order := []verdict{neverFits, overCap, capFull, busy}
	return order[max(slices.Index(order, a), slices.Index(order, b))]
}

// capped says whether the request would take its share group above its cap.
func (c candidate) capped() bool { return c.Cap > 0 && c.Rise > 0 && c.Claimed+c.Rise > c.Cap }

// obstacle says why the request cannot start there now, "" if it can. It asks what the ledger will ask.
func (c candidate) obstacle(n need) string {
	switch {
	case !c.alone(n):
		return "does not fit alone"
	case c.Cap > 0 && c.Life > c.Cap:
		return "its share group's cap is smaller"
	case c.capped():
		return "its share group's cap is full"
	case c.Waiters > 0:
		return "admitted requests wait for pages"
	case c.Granted+c.Pages > c.Capacity:
		return "not enough pages"
	case c.SlotsUsed+max(1, c.SlotsNeeded) > c.Slots:
		return "not enough slots"
	}
	return ""
}
