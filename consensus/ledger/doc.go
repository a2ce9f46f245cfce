// Package ledger is the cluster-wide accounting of KV memory: a state machine that a replicated log drives.
//
// The life of a reservation:
//
//	          Reserve                Claim                 End
//	router ───────────▶ RESERVED ───────────▶ CLAIMED ───────────▶ gone
//	                       │                  ▲  │  ▲
//	       Drop, or the    │            Claim │  │  └─ Grow: at once, or as a waiter in key order
//	       router's end    ▼                  │  ▼
//	                    ORPHANED ─────────────┘  the incarnation ends ⇒ gone
//	                       │
//	                       └─ Tombstone ⇒ gone
//
// The life of a page, seen from here: capacity ─(Reserve, Grow)▶ an account's grant ─(Return, End, Tombstone, or the
// end of the incarnation)▶ capacity. Which physical page that is, the worker's pool knows alone.
//
// Tenants are put by operators. While none was ever put, whoever asks is served, and nobody pays. After that a reserve
// names its tenant: it is charged an estimate of its service (fair.go) and of the tenant's token budget, and its end puts
// the truth in their place; what never ran costs nothing. Whose turn it is, routers decide, by these counters.
//
// Invariants; Check proves I1–I6 and I9–I11 from the records, tests quote all of them:
//
//   - I1 (rule A3 of the design): of each worker, Σ grants ≤ pages − overhead, and nothing is granted while it is
//     fenced.
//   - I2: an account's grant is reserved + grown − returned, at least its unclaimed pages, and never negative.
//   - I3: slots used, unclaimed pages, orphans and counts are sums over the reservations of the living incarnation.
//   - I4: waiters are in ascending key order, one a branch, all claimed; the first that its group's cap does not stop
//     needs more than there is room.
//   - I5: a session is a router's or the living incarnation of one worker; numbers ascend, none is given twice.
//   - I6: results kept end at the session's last sequence and are at most 1,024.
//   - I7: a sequence is applied once; a repeat answers what it answered and changes nothing.
//   - I8: equal logs make equal states, byte for byte, and a restored snapshot goes on like the state it was taken of.
//   - I9: a fenced worker is remembered for 100 of its leases, and at most 1,024 are, those fenced last.
//   - I10: charges settle exactly: a tenant's counter is what it was lifted to, the truth of what has ended, and the
//     estimates of what lives.
//   - I11: a share group's claim is, of each account, its grant or the whole lives of its reservations, whichever is
//     more. No grant raises a claim above its cap, so grants alone never exceed it; a growth within the lives raises none.
//
// What a worker must know: the pages of a Grown result are also in the next notice's totals. A process takes the
// totals, and adds a result's pages only if its revision is above that of every notice it has read.
//
// The package never reads a clock, draws a random number, takes a lock, logs, or lets the order of a map show. Time
// comes in as Tick, identity as nonces and sequences, and a command that this version does not know stops the process:
// to go on would make replicas differ.
package ledger
