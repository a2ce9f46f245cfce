// Package sim plays whole clusters in virtual time: the real router, ledger, worker, scheduler and pool, over a network, a
// disk and devices that take seeded times.
//
//	 seed ─▶ Scenario: who asks what and when, who leaves, what is killed or held, how many pages there are
//	              │
//	              ▼
//	clients ──HTTP──▶ router ──gRPC──▶ workers ──▶ engine ──▶ kvpool ──▶ device
//	   │                 │                            │                     │
//	   │ texts           ▼                            ▼ between steps       │ a hash of each prefix in its pages,
//	   │              ledger: raft, in memory      Pool.Check               ▼ steps that cost time
//	   ▼                 ▼ at each index
//	 say              State.Check
//
// A run belongs in a bubble of testing/synctest: its clock stands still while anybody can run, and leaps when nobody can.
// A scenario is over when every client has its answer or has left. It is broken, with the promise's name, when
//
//   - P1: an admitted request ends by anything but its own end, its client's leaving, or the loss of a host that the scenario
//     struck. A client whose request was lost with a host asks again. A device that is given up for a step that was only slow
//     breaks it too; one that the scenario lets hang loses nothing.
//   - P2: a client has no answer after ten minutes, longer on slow devices, or no device steps for five seconds while clients wait, though nothing
//     is struck; or a branch lets go before which nobody is in order on its worker.
//   - P3: the ledger's invariants do not hold after a proposal.
//   - P4: a pool's do not hold between two steps.
//   - P6: any part of a text is not what its prompt, seed and choice give: alone or in a batch, from the cache or not,
//     after preemption, or asked again.
//   - P8: anything is granted, charged, reserved or waited for a minute after the last answer.
//
// No decision is made again here. Instead of kernels there is a device whose pages hold hashes of prefixes, and instead of
// TCP and files there is memory that takes its time. Programs are wired as in cmd, but for gRPC's keepalive. A kill cuts the
// host off before its program is stopped, and spares what the ledger has handed to raft. What is not played yet: several
// routers; a damaged or torn disk; moves. Each share group has a tenant with an API key, some have a cap.
//
// What a seed fixes: the scenario; the delays of a connection by number of write, and of a disk; what steps cost; the
// ledger's keys and nonces. What it does not fix: which of several goroutines goes first that can go at the same virtual
// instant, which ready case of a select is taken, the order of maps, the nonces of workers. The runtime draws those, and
// lets nobody seed it: ten plays of one seed give up to ten orders of events, on one processor too. So a seed that fails
// names a scenario, and not one interleaving; -count plays it more often.
package sim
