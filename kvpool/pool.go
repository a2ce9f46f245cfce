package kvpool

import "fmt"

// AccountID names an account of a pool.
type AccountID int32

// Overhead is account 0: pages that prefill chunks in flight hold beyond their branches' Demand.
const Overhead AccountID = 0

const nobody AccountID = -1

// BranchID names an open branch of a pool.
type BranchID int32

// Pool is all pages of a worker. The zero value is not usable; see New.
type Pool struct {
	geometry Geometry
	pages    []page
	free     []PageID
	idle     list
	accounts []account
	branches []branch
	closed   []BranchID // branch slots to use again
	index    index
	limbo    []limboPage // let go while a step was in flight, oldest first
	letGoes  uint64      // times that a page went to limbo
	begun    uint64      // newest step that began
	retired  uint64      // newest step that retired
	held     int         // Σ holders of pages
	granted  int         // Σ grants of accounts
	events   []Event
}

type account struct {
	grant   int
	charged int
	leaving int // of charged, those that nobody holds and a step in flight may touch
}

// page is the state of one physical page.
type page struct {
	version    uint32
	group      int32
	holders    int32     // branches that hold it
	core       int32     // of them, those whose Demand it is part of
	charge     AccountID // account that it is charged to, nobody if free or idle
	node       nodeID    // index node whose block it holds, noNode if none
	prev, next PageID    // neighbours in the idle list
	where      place
	letGo      uint64 // number of the letting go that put it in limbo
}

type place uint8

const (
	inFree place = iota
	inUse
	inLimbo
	inIdle
)

// limboPage is a page that the last holder let go while step was the newest in flight. It is stale when the page was
// taken up again since.
type limboPage struct {
	page  PageID
	step  uint64
	letGo uint64
}

// ShortfallError says that an account has too little room. Nothing was changed.
type ShortfallError struct {
	Account AccountID
	Need    int // pages newly charged
	Room    int // grant − charged
}

func (e *ShortfallError) Error() string {
	return fmt.Sprintf("account %d needs %d pages, has room for %d", e.Account, e.Need, e.Room)
}

// New returns a pool of free pages. The overhead account has its grant; others are opened with none.
func New(g Geometry, pages int) (*Pool, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	if pages < g.Overhead()+g.Demand(1).Pages {
		return nil, fmt.Errorf("%d pages: %d of overhead and %d for one token do not fit", pages, g.Overhead(), g.Demand(1).Pages)
	}
	p := &Pool{
		geometry: g, pages: make([]page, pages), free: make([]PageID, 0, pages),
		idle: newList(), index: newIndex(g), accounts: []account{{grant: g.Overhead()}}, granted: g.Overhead(),
	}
	for id := pages - 1; id >= 0; id-- {
		p.pages[id] = page{charge: nobody, node: noNode, prev: NoPage, next: NoPage}
		p.free = append(p.free, PageID(id))
	}
	return p, nil
}

// Geometry is the pool's shape.
func (p *Pool) Geometry() Geometry { return p.geometry }

// OpenAccount returns a new account without a grant.
func (p *Pool) OpenAccount() AccountID {
	p.accounts = append(p.accounts, account{})
	return AccountID(len(p.accounts) - 1)
}

// SetGrant makes a's grant n pages. It fails, changing nothing, below what is charged or above what the pool has.
func (p *Pool) SetGrant(a AccountID, n int) error {
	sum := p.granted + n - p.accounts[a].grant
	if n < p.accounts[a].charged || sum > len(p.pages) {
		return fmt.Errorf("grant of %d pages to account %d: %d are charged, all grants would be %d of %d pages",
			n, a, p.accounts[a].charged, sum, len(p.pages))
	}
	p.accounts[a].grant, p.granted = n, sum
	return nil
}

// Room is how many more pages a's branches can take.
func (p *Pool) Room(a AccountID) int { return p.accounts[a].grant - p.accounts[a].charged }

// Leaving is how many of a's pages come free once the steps in flight have retired, if nobody takes them up again.
func (p *Pool) Leaving(a AccountID) int { return p.accounts[a].leaving }

// Charged is how many pages a holds.
func (p *Pool) Charged(a AccountID) int { return p.accounts[a].charged }

// Grant is how many pages a may hold.
func (p *Pool) Grant(a AccountID) int { return p.accounts[a].grant }

// Counts is where the pool's pages are. Charged leaves the overhead out; it, Free, Idle and Overhead add up to Total.
// Held counts a page for each branch that holds it: what it is above what is charged, sharing saves.
type Counts struct{ Total, Free, Idle, Charged, Overhead, Held int }

// Counts is the pool's state in numbers.
func (p *Pool) Counts() Counts {
	c := Counts{Total: len(p.pages), Free: len(p.free), Idle: p.idle.len, Overhead: p.accounts[Overhead].charged, Held: p.held}
	c.Charged = c.Total - c.Free - c.Idle - c.Overhead
	return c
}

// Version is bumped each time the page is given out anew; whoever copies a page reads it before and after.
func (p *Pool) Version(id PageID) uint32 { return p.pages[id].version }

// take gives out a page for a group, reclaiming the least recently used idle one if none is free. K3 makes it succeed.
func (p *Pool) take(group int) PageID {
	if len(p.free) == 0 {
		p.reclaim()
	}
	id := p.free[len(p.free)-1]
	p.free = p.free[:len(p.free)-1]
	pg := &p.pages[id]
	pg.version++
	pg.group, pg.where = int32(group), inUse
	return id
}

// reclaim frees the least recently used idle page. Those who let go push deep blocks before shallow ones, so that the
// front of the list is a leaf of its chain.
func (p *Pool) reclaim() {
	id := p.idle.front
	if id == NoPage {
		panic("kvpool: an allocation inside a grant found neither a free nor an idle page")
	}
	p.idle.remove(p.pages, id)
	p.detach(id)
	p.pages[id].where = inFree
	p.free = append(p.free, id)
}

// hold adds a holder to a page, which may be idle or in limbo.
func (p *Pool) hold(id PageID, a AccountID, core bool) {
	pg := &p.pages[id]
	if pg.where == inIdle {
		p.idle.remove(p.pages, id)
	}
	if pg.where == inLimbo {
		p.accounts[pg.charge].leaving--
	}
	pg.where = inUse // an entry of the page in limbo is stale now, and skipped
	pg.holders++
	p.held++
	if core {
		pg.core++
		p.charge(id, a)
	} else if pg.core == 0 {
		p.charge(id, Overhead)
	}
}

// uncore takes a page out of its holder's Demand while the holder keeps it.
func (p *Pool) uncore(id PageID) {
	pg := &p.pages[id]
	pg.core--
	if pg.core == 0 {
		p.charge(id, Overhead)
	}
}

// drop takes a holder off a page. The last one leaves it idle if it is indexed, else free; while a step is in flight it
// stays charged until the step has retired.
func (p *Pool) drop(id PageID, core bool) {
	pg := &p.pages[id]
	pg.holders--
	p.held--
	if core {
		pg.core--
	}
	switch {
	case pg.holders == 0 && p.begun > p.retired:
		p.letGoes++
		pg.where, pg.letGo = inLimbo, p.letGoes
		p.accounts[pg.charge].leaving++
		p.limbo = append(p.limbo, limboPage{id, p.begun, p.letGoes})
	case pg.holders == 0:
		p.settle(id)
	case core && pg.core == 0:
		p.charge(id, Overhead)
	}
}

// settle makes a page that nobody holds and no step touches idle or free.
func (p *Pool) settle(id PageID) {
	p.charge(id, nobody)
	pg := &p.pages[id]
	if pg.node == noNode {
		pg.where = inFree
		p.free = append(p.free, id)
		return
	}
	pg.where = inIdle
	p.idle.push(p.pages, id)
}

func (p *Pool) charge(id PageID, a AccountID) {
	pg := &p.pages[id]
	if pg.charge == a {
		return
	}
	if pg.charge != nobody {
		p.accounts[pg.charge].charged--
	}
	if a != nobody {
		p.accounts[a].charged++
	}
	pg.charge = a
}

// Begin says that a step, numbered above all before it, was submitted: pages let go from here on stay charged until it
// has retired.
func (p *Pool) Begin(step uint64) { p.begun = step }

// Retire says that a step and all before it touch no page any more.
func (p *Pool) Retire(step uint64) {
	p.retired = max(p.retired, step)
	n := 0
	for n < len(p.limbo) && p.limbo[n].step <= step {
		if pg := &p.pages[p.limbo[n].page]; pg.where == inLimbo && pg.letGo == p.limbo[n].letGo {
			p.accounts[pg.charge].leaving--
			p.settle(p.limbo[n].page)
		}
		n++
	}
	p.limbo = p.limbo[:copy(p.limbo, p.limbo[n:])]
}
