// Package kvpool says what a page of KV memory is, who holds it, and which goes next.
//
//	        Extend                 Advance                    Release, slide
//	free ───────────▶ charged ───────────────▶ charged ──────────────────────▶ idle
//	 ▲                (held)   full block gets  (held,      last holder let go   │ ▲
//	 │                         its name         indexed)    and steps retired    │ │ Match
//	 └────────────────────────────── reclaim: least recently used first ◀───────┘ └──▶ charged
//
// A branch is one sequence of tokens that grows. It holds, in each layer group, the pages of the blocks that its next
// step can touch. What it holds between steps is its Demand and is charged to its account; what a prefill chunk holds
// beyond that, in window groups and while its step runs, is charged to account 0, the overhead. Invariants, which Check
// proves:
//
//   - K1 Every page is free, idle or charged, and in exactly one place (design A1).
//   - K2 A charged page is charged once, to one account: to its branches' while one of them holds it inside Demand, to
//     the overhead else.
//   - K3 charged ≤ grant in every account, and Σ grants ≤ pages; so every allocation inside a grant succeeds (A2, A3).
//   - K4 Allocation takes every page of every group, or none (P4).
//   - K5 A page that an unretired step could touch is not free and not idle.
//   - K6 An indexed page holds the keys and values of its node's tokens after the node's prefix; a hit holds everything
//     that it uses, in every group.
//   - K7 Idle pages of full groups go leaf first: a node's page is reclaimed only when no node below it has one.
//   - K8 A page's version is bumped each time it is given out anew.
//
// The package never waits, locks, logs, or looks at a clock; one goroutine owns a pool. It never sees bytes of KV.
package kvpool
