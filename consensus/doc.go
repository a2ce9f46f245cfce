// Package consensus keeps the ledger on disk and on several replicas: it is the shell of raft around the pure package
// ledger.
//
// The life of a proposal:
//
//	Propose, Submit, Session.Do
//	        │
//	        ▼
//	   committer  ── what piled up while two entries were in flight ──▶  raft: write, sync, commit
//	                                                                         │
//	   answer ◀── results ── machine: State.Apply, one view a batch ◀────────┘
//
// At a follower an entry goes to the leader over a line (link.go), is put in line there, and its results are given out
// once the follower's own view shows them.
//
// The life of a replica:
//
//	empty disk ─▶ asks all its peers ─┬─ none is of a cluster: founds it with them ───────────▶ votes
//	                                  └─ a leader: a seat without a vote ─▶ caught up ─▶ votes ─┘
//	disk with a log ─▶ as the log has it; says where it is now (greet) ─▶ ... ─▶ removed: it fails
//
// Goroutines, all waited for by Close: the committer's one, one for each of the entries in flight, the node's duties
// (run: the leader's clock, the follower's line, greetings), one for each Session, and raft's own.
//
// Invariants, quoted by tests:
//
//   - N1: proposals enter the log in the order in which they were submitted.
//   - N2: a result is given out only after its entry is on disk (of a majority), and View shows it by then.
//   - N3: who resends a proposal under the same (session, sequence) has it applied once, whatever failed in between.
//   - N4: a node that was killed goes on from the same state: equal digests at equal revisions.
//   - N5: time in the ledger never runs faster than the leader's clock, and not at all without a leader.
//   - N6: what changed on the disk is never applied or passed over: the node says which entry or snapshot, and where, and
//     stops.
//   - N7: a replica whose disk is empty has no vote before it has the log, unless all its peers say that there is no
//     cluster.
//   - N8: a replica speaks raft with those of its own cluster only, or with those that are of none yet.
//   - N9: the first write or fsync that fails is the last: nothing is written, acknowledged or voted for after it.
//   - N10: a seat belongs to one disk: a second process of a living replica's name, or a disk whose seat another has, has no
//     vote, touches no member's, is told and fails.
//
// It never decides anything about pages, never blocks in Apply on anything but memory, and never retries a Tick: time
// that was lost stays lost.
package consensus
