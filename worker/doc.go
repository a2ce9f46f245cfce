// Package worker turns tokens into tokens: it runs reserved requests on a device whose KV memory it owns.
//
//	router ──Generate──▶ server ──▶ engine ──Schedule──▶ plan ──Submit, Wait──▶ device
//	   ▲                              │ ▲                                          │
//	   └────────── tokens ◀───────────┘ └────────────── ids ◀──────────────────────┘
//	router ◀──proposals, cache events, heartbeats── line ──results, notices──▶ engine
//
// A request has a branch for each of its choices. A branch waits, starts on what the prefix cache has of it, computes its
// prompt in chunks, then a token a step, or more where it guesses right; the others of its request start on what it has
// computed of the prompt. When pages run short the last in order lets go of its own and waits; it resumes by computing
// again what the cache lost. Invariants:
//
//	W1  One goroutine, the engine's, owns branches, accounts and pool; it never waits for a client or a router.
//	W2  charged ≤ grant in every account, and a grant counts only pages that the ledger gave for claimed reservations.
//	W3  A branch lets go only for one before it in order (P2).
//	W4  What a branch says does not depend on the batch, chunks, cache, or how often it let go (P6).
//	W5  When a client leaves, its branch holds nothing from the next step on, and the ledger is told.
//	W6  A request that the engine took ends with one Finished for each branch, or with its stream's error.
//
// The package never imports router or consensus; it speaks to them by api/worker and api/ledger.
package worker
