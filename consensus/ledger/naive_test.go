package ledger

import (
	"fmt"
	"maps"
	"slices"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// naive is the ledger's rules without its bookkeeping: every number is summed up from what happened when it is needed.
type naive struct {
	revision uint64
	left     map[uint64]uint64 // ms, of living sessions
	lease    map[uint64]uint64
	owner    map[uint64]string // worker of a session, "" for a router
	alive    map[string]uint64 // living incarnation of a worker
	forget   map[string]uint64 // ms, of fenced workers
	capacity map[string]uint64
	slots    map[string]uint64
	requests map[uint64]*request // living ones
	grants   []change            // of living incarnations, in order
	returned map[[2]any]uint64   // total by (incarnation, group)
	guests   map[string]*guest
	caps     map[string]uint64 // by share group
	floorOf  map[string]uint64
	everPut  bool
}

type request struct {
	id, rank, router, incarnation uint64
	worker, group                 string
	pages, slots                  uint64
	branches                      uint32
	state                         ledgerv1.ReservationState
	waits                         map[uint32]*wish // by branch

	life, charged, prompt uint64
	tokens                int64
	tenant                string // who pays; empty: nobody
}

// wish is a branch's need, and its want on top.
type wish struct {
	of         *request
	branch     uint32
	need, want uint64
}

type change struct {
	incarnation uint64
	group       string
	pages       uint64
	tombstoned  uint64 // reservation, 0 if this was a growth
	dead        bool
}

func newNaive() *naive {
	return &naive{
		left: map[uint64]uint64{}, lease: map[uint64]uint64{}, owner: map[uint64]string{}, alive: map[string]uint64{},
		forget: map[string]uint64{}, capacity: map[string]uint64{}, slots: map[string]uint64{},
		requests: map[uint64]*request{}, returned: map[[2]any]uint64{},
		guests: map[string]*guest{}, caps: map[string]uint64{}, floorOf: map[string]uint64{},
	}
}

func (n *naive) given(incarnation uint64, group string) (pages uint64) {
	for _, c := range n.grants {
		if c.incarnation == incarnation && c.group == group && !c.dead {
			pages += c.pages
		}
	}
	return pages
}

func (n *naive) room(worker string) uint64 {
	room := n.capacity[worker]
	for _, c := range n.grants {
		if c.incarnation == n.alive[worker] && !c.dead {
			room -= c.pages
		}
	}
	for k, pages := range n.returned {
		if k[0] == n.alive[worker] {
			room += pages
		}
	}
	return room
}

// of are the living requests of a worker in key order.
func (n *naive) of(worker string) (out []*request) {
	for _, r := range n.requests {
		if r.incarnation == n.alive[worker] {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *request) int {
		if a.rank != b.rank {
			return int(a.rank) - int(b.rank)
		}
		return int(a.id) - int(b.id)
	})
	return out
}

// waiting are the wishes on a worker in key order.
func (n *naive) waiting(worker string) (out []*wish) {
	for _, r := range n.of(worker) {
		for _, branch := range slices.Sorted(maps.Keys(r.waits)) {
			out = append(out, r.waits[branch])
		}
	}
	return out
}

func (n *naive) slotsUsed(worker string) (used uint64) {
	for _, r := range n.of(worker) {
		used += r.slots
	}
	return used
}

// serve gives one waiter after the other its need, then, if nobody waits any more, the same ones their wants.
func (n *naive) serve(worker string) (got map[*wish]uint64) {
	got = map[*wish]uint64{}
	var served []*wish
	give := func(x *wish, pages uint64) {
		n.grants = append(n.grants, change{incarnation: x.of.incarnation, group: x.of.group, pages: pages})
		got[x] += pages
	}
	stopped := map[string]bool{}
	for _, x := range n.waiting(worker) {
		stopped[x.of.group] = stopped[x.of.group] || n.exceeds(worker, x.of.group, x.need, 0)
		if stopped[x.of.group] {
			continue
		}
		if x.need > n.room(worker) {
			break
		}
		give(x, x.need)
		delete(x.of.waits, x.branch)
		served = append(served, x)
	}
	for _, x := range served {
		left := n.waiting(worker)
		if !stopped[x.of.group] && !slices.ContainsFunc(left, func(o *wish) bool { return !stopped[o.of.group] }) {
			give(x, n.spare(worker, x.of.group, min(x.want, n.room(worker))))
		}
	}
	return got
}

func (n *naive) end(session uint64) {
	delete(n.left, session)
	for _, id := range slices.Sorted(maps.Keys(n.requests)) {
		r := n.requests[id]
		if r.incarnation == session {
			n.forgive(r, nil)
			delete(n.requests, id)
		}
		if r.router == session && r.state == stateReserved {
			r.state = stateOrphaned
		}
	}
	if w := n.owner[session]; w != "" && n.alive[w] == session {
		n.alive[w], n.forget[w] = 0, 100*n.lease[session]
	}
}

func (n *naive) tick(m *ledgerv1.Tick) {
	n.revision++
	defer n.resume()
	for _, g := range n.guests {
		n.level(g, 0)
		g.level = min(int64(g.put.Burst)*60_000, g.level+int64(g.put.TokensPerMinute*m.DeltaMs))
	}
	for w, left := range n.forget {
		if n.forget[w] = left - min(left, m.DeltaMs); n.forget[w] == 0 {
			delete(n.forget, w)
			delete(n.alive, w)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(n.left)) {
		switch {
		case slices.Contains(m.Live, id):
			n.left[id] = n.lease[id]
		case n.left[id] <= m.DeltaMs:
			n.end(id)
		default:
			n.left[id] -= m.DeltaMs
		}
	}
}

// command carries out what is under a living session, and says how in a word.
func (n *naive) command(by uint64, command *ledgerv1.Command) string {
	n.revision++
	defer n.resume()
	switch c := command.Kind.(type) {
	case *ledgerv1.Command_PutTenant:
		if n.owner[by] != "" {
			return invalid.String()
		}
		return n.putTenant(c.PutTenant)
	case *ledgerv1.Command_DeleteTenant:
		if n.owner[by] != "" {
			return invalid.String()
		}
		return n.deleteTenant(c.DeleteTenant.Id)
	case *ledgerv1.Command_Reserve:
		return n.reserve(by, c.Reserve)
	case *ledgerv1.Command_Drop:
		r := n.requests[c.Drop.Reservation]
		if r == nil || r.router != by || r.state != stateReserved {
			return noReservation.String()
		}
		r.state = stateOrphaned
	case *ledgerv1.Command_Claim:
		r := n.requests[c.Claim.Reservation]
		if r == nil || r.incarnation != by || r.state == stateClaimed {
			return noReservation.String()
		}
		r.state = stateClaimed
	case *ledgerv1.Command_Tombstone:
		r := n.requests[c.Tombstone.Reservation]
		if r == nil || r.incarnation != by || r.state == stateClaimed {
			return noReservation.String()
		}
		for i := range n.grants {
			n.grants[i].dead = n.grants[i].dead || n.grants[i].tombstoned == r.id
		}
		n.forgive(r, nil)
		delete(n.requests, r.id)
		n.serve(r.worker)
	case *ledgerv1.Command_ReturnPages:
		if n.owner[by] == "" {
			return invalid.String()
		}
		return n.giveBack(by, n.owner[by], c.ReturnPages.Accounts[0])
	default:
		return n.claimed(by, command)
	}
	return "ok"
}

func (n *naive) reserve(by uint64, m *ledgerv1.Reserve) string {
	life := min(min(uint64(m.Branches), m.Slots)*m.PagesMax, n.capacity[m.Worker])
	switch {
	case m.Pages > m.PagesMax*uint64(m.Branches):
		return invalid.String()
	case n.alive[m.Worker] == 0 || n.alive[m.Worker] != m.Incarnation:
		return noWorker.String()
	case n.mayReserve(m) != "":
		return n.mayReserve(m)
	case m.PagesMax > n.capacity[m.Worker] || m.Pages > n.capacity[m.Worker]:
		return neverFits.String()
	case n.group(m.ShareGroup) > 0 && max(life, m.Pages) > n.group(m.ShareGroup):
		return ledgerv1.RefusalCode_REFUSAL_CODE_OVER_CAP.String()
	case n.exceeds(m.Worker, m.ShareGroup, m.Pages, life):
		return ledgerv1.RefusalCode_REFUSAL_CODE_CAP_FULL.String()
	case n.holdsUp(m.Worker, m.ShareGroup) || m.Pages > n.room(m.Worker) ||
		n.slotsUsed(m.Worker)+m.Slots > n.slots[m.Worker]:
		return busy.String()
	}
	r := &request{id: n.revision, rank: n.revision - min(n.revision, m.Bonus), router: by, incarnation: m.Incarnation,
		worker: m.Worker, group: m.ShareGroup, pages: m.Pages, slots: m.Slots, branches: m.Branches, state: stateReserved, waits: map[uint32]*wish{}, life: life}
	n.charge(r, m)
	n.requests[r.id] = r
	n.grants = append(n.grants, change{incarnation: r.incarnation, group: r.group, pages: r.pages, tombstoned: r.id})
	return fmt.Sprint("reserved ", r.id)
}

// claimed carries out what needs a claimed request.
func (n *naive) claimed(by uint64, command *ledgerv1.Command) string {
	id := max(command.GetGrow().GetReservation(), command.GetWithdraw().GetReservation(),
		command.GetEnd().GetReservation())
	r := n.requests[id]
	if r == nil || r.incarnation != by || r.state != stateClaimed {
		return noReservation.String()
	}
	switch c := command.Kind.(type) {
	case *ledgerv1.Command_Grow:
		if c.Grow.Branch >= r.branches {
			return invalid.String()
		}
		if c.Grow.Need > n.capacity[r.worker] {
			return neverFits.String()
		}
		x := &wish{r, c.Grow.Branch, c.Grow.Need, c.Grow.Want}
		r.waits[x.branch] = x
		return fmt.Sprint("grown ", n.serve(r.worker)[x])
	case *ledgerv1.Command_Withdraw:
		delete(r.waits, c.Withdraw.Branch)
		n.serve(r.worker)
	case *ledgerv1.Command_End:
		delete(n.requests, r.id)
		if how := n.giveBack(by, r.worker, c.End.Accounts[0]); how != "ok" {
			n.requests[r.id] = r
			return how
		}
		n.forgive(r, c.End)
	}
	return "ok"
}

func (n *naive) giveBack(by uint64, worker string, total *ledgerv1.Returned) string {
	k := [2]any{by, total.ShareGroup}
	unclaimed := uint64(0)
	for _, r := range n.requests {
		if r.incarnation == by && r.group == total.ShareGroup && r.state != stateClaimed {
			unclaimed += r.pages
		}
	}
	if total.Pages+unclaimed > n.given(by, total.ShareGroup) && total.Pages > 0 {
		return invalid.String()
	}
	n.returned[k] = max(n.returned[k], total.Pages)
	n.serve(worker)
	return "ok"
}
