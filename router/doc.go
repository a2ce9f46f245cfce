// Package router turns text into reserved work for workers, and their tokens into text: the OpenAI API in front, the
// ledger and the workers behind.
//
// The life of a request:
//
//	HTTP ─▶ tenant ─▶ parameters ─▶ prompt ─▶ queue ─▶ place ─▶ reserve ─▶ dispatch ⇒ worker
//	                                             ▲         │        │          │
//	                                             └── no room now ───┴─ refused ┘
//	worker ⇒ tokens ─▶ detokenise ─▶ stop strings ─▶ SSE or one JSON body
//
// Each of its prompts is reserved, queued and dispatched for itself; a prompt's choices are branches of its reservation, and
// what comes of each goes to the client under its index.
//
// The life of a worker, seen from here:
//
//	registered, at any router ─▶ watched ─▶ its card is here ─▶ served ─▶ stream gone ⇒ not placed on until it is back
//
// Invariants, quoted by tests:
//
//   - R1: a client that leaves, at any stage, leaves nothing behind: the place in the queue, the reservation and the
//     worker's branch all go.
//   - R2: what is reserved is dispatched or dropped, and after the first token nothing is dispatched twice.
//   - R3: the text is the same streamed or not and whatever the tokens were grouped in, is always valid UTF-8, and
//     never contains a part of the stop string that ended it.
//   - R4: of one model, the turn is the tenant's that has had the least service by weight, after a pause at least as much as
//     those that wait; of one tenant, who came first is placed first. A request without room holds its model's queue until
//     a tenant with less service comes: each pass raises that one's counter, so it is passed finitely often. One that its
//     own tenant's cap stops holds up nobody, and no model's queue holds up another's.
//   - R5: a worker is placed on only while it is watched, its card is here and its incarnation lives.
//   - R6: the prefix index never says more than the worker said, and its size is bounded.
//   - R7: a field that is not built is refused by name, never ignored.
//   - R8: results of a worker's proposals go back in their order, and a notice at least as new as every result follows.
//   - R9: where there are tenants, a request without a key and one with a wrong one get the same answer, before anything
//     else of them is looked at, and no prefix is found outside its share group.
//
// Goroutines: those of HTTP and gRPC handlers, and what Run starts and waits for. The package keeps no text, logs none,
// decides nothing about branches that a worker has, and never imports the worker.
package router
