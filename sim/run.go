package sim

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Run plays a scenario to its end or to the first rule that is broken. It belongs in a bubble of testing/synctest, of
// which it leaves nothing running. The log gets what the programs would log; nil is nowhere.
func Run(s Scenario, log *slog.Logger) *Report { return run(s, sabotage{}, log) }

func run(s Scenario, x sabotage, log *slog.Logger) *Report {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := newCluster(s, x, log)
	if err := c.start(); err != nil {
		c.fail(err)
	}
	var all, watch sync.WaitGroup
	watching, rest := context.WithCancel(c.life)
	watch.Go(func() { c.watch(watching) })
	for i := range s.Requests {
		all.Go(func() { c.serve(i) })
	}
	byHost := map[string][]Fault{}
	for _, f := range s.Faults {
		byHost[f.Host] = append(byHost[f.Host], f)
	}
	for _, faults := range byHost {
		all.Go(func() {
			for _, f := range faults {
				c.apply(f)
			}
		})
	}
	all.Wait()
	rest()
	watch.Wait()
	took := c.now()
	if c.life.Err() == nil {
		c.settle()
	}
	broken := context.Cause(c.life)
	c.fail(context.Canceled)
	c.stop()
	time.Sleep(patience) // a dial that nobody waits for any more ends by itself
	return &Report{
		Scenario: s, Events: c.story.events, Broken: broken, Took: took,
		Preemptions: c.story.preemptions, Cached: c.story.cached,
		Audited: int(c.story.audited.Load()), Inspected: int(c.story.inspected.Load()),
	}
}
