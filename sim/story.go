package sim

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Event is one thing that happened.
type Event struct {
	At        time.Duration
	Who, What string
}

// story is what happened, in order.
type story struct {
	mu                  sync.Mutex
	events              []Event
	preemptions, cached int

	audited, inspected atomic.Int64
}

func (s *story) add(at time.Duration, who, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, Event{at, who, what})
}

func (s *story) count(preemptions, cached int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.preemptions += preemptions
	s.cached += cached
}

// Report is what came of a run.
type Report struct {
	Scenario    Scenario
	Events      []Event
	Broken      error // the first rule that did not hold
	Took        time.Duration
	Preemptions int // of branches that came to their end
	Cached      int // prompt tokens that were not computed again
	Audited     int // proposals after which the ledger was checked
	Inspected   int // times that a pool was
}

// count is how often something happened.
func (r *Report) count(what string) (n int) {
	for _, e := range r.Events {
		if e.What == what {
			n++
		}
	}
	return n
}

// columns is the width of a drawing's time.
const columns = 64

// Draw shows the run: a line for each host to which something happened, and for each client.
//
//	·  asked, nothing heard    =  an answer comes    o  done    <  left    x  lost, broken, killed    ~  held
func (r *Report) Draw() string {
	var b strings.Builder
	s := &r.Scenario
	fmt.Fprintf(&b, "seed %d: %d workers of", s.Seed, len(s.Workers))
	for _, w := range s.Workers {
		fmt.Fprintf(&b, " %d", w.Pages)
	}
	fmt.Fprintf(&b, " pages, %d requests, %v, %d preemptions, %d tokens cached\n",
		len(s.Requests), r.Took.Round(time.Millisecond), r.Preemptions, r.Cached)
	lines, order := map[string][]rune{}, []string{}
	state := map[string]rune{}
	for _, e := range r.Events {
		if strings.HasPrefix(e.What, "to ") {
			continue
		}
		line := lines[e.Who]
		if line == nil {
			order = append(order, e.Who)
		}
		for at := r.column(e.At); len(line) < at; {
			line = append(line, or(state[e.Who]))
		}
		mark, next := marks(e.What)
		lines[e.Who], state[e.Who] = append(line, mark), next
	}
	for _, who := range order {
		for or(state[who]) != ' ' && len(lines[who]) < columns {
			lines[who] = append(lines[who], state[who])
		}
		fmt.Fprintf(&b, "%5s %s\n", who, string(lines[who]))
	}
	return b.String()
}

func (r *Report) column(at time.Duration) int {
	if r.Took <= 0 {
		return 0
	}
	return int(at * columns / r.Took)
}

func or(r rune) rune {
	if r == 0 {
		return ' '
	}
	return r
}

// marks are what an event is drawn as, and what is drawn after it until the next.
func marks(what string) (at, then rune) {
	switch what {
	case "asks":
		return '·', '·'
	case "hears":
		return '=', '='
	case "done":
		return 'o', ' '
	case "left":
		return '<', ' '
	case "held":
		return '~', '~'
	case "killed", "lost", "broken":
		return 'x', ' '
	}
	return '|', ' '
}
