package consensus

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// lead runs the leader's duties while this node leads: the name of a new cluster, then time.
func (n *Node) lead(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.raft().LeaderCh():
		}
		for n.leads() && ctx.Err() == nil && n.failure() == nil {
			if err := n.reign(ctx); err != nil && ctx.Err() == nil {
				n.config.Log.Warn("ledger leadership interrupted", "node", n.config.ID, "error", err.Error())
				n.pause(ctx)
			}
		}
	}
}

// reign lasts until the leadership, or ctx, ends. Its first tick lets no time pass: nobody could renew before it.
func (n *Node) reign(ctx context.Context) error {
	term := n.Term()
	if err := n.raft().Barrier(0).Error(); err != nil {
		return fmt.Errorf("read the log to its end: %w", err)
	}
	if err := n.moved(); err != nil {
		return err
	}
	if n.View().ClusterID == nil {
		if err := n.nameCluster(ctx); err != nil {
			return err
		}
	}
	n.reigns.Store(term)
	n.config.Log.Info("ledger leader", "node", n.config.ID, "term", term, "revision", n.Revision())
	n.takeHeard() // what was heard before this reign says nothing of now
	last := n.config.Clock.Now()
	if err := n.tick(ctx, 0); err != nil {
		return err
	}
	for n.Term() == term && n.leads() {
		interval := n.tickInterval()
		select {
		case <-ctx.Done():
			return nil
		case <-n.raft().LeaderCh(): // it was lost, and may be won again by now
			continue
		case <-n.config.Clock.After(interval):
		}
		// Capped: a leader that stood still for a while has heard from nobody in that time.
		elapsed := n.config.Clock.Now().Sub(last).Truncate(time.Millisecond)
		last = last.Add(elapsed)
		if err := n.tick(ctx, min(elapsed, 2*interval)); err != nil {
			return err
		}
	}
	return nil // lost and won again in between: a reign of its own
}

// handOverTries is how often raft is asked for another leader: the one it picks may not answer.
const handOverTries = 3

// LeaveLead gives the lead to another replica, if this node has it, so that one that is about to stop is not missed first.
// It returns once another leads as far as this node knows, or with an error if ctx ends before, or there is none to take it.
func (n *Node) LeaveLead(ctx context.Context) error {
	if !n.leads() {
		return nil
	}
	if voters := slices.DeleteFunc(n.Members(), func(m Member) bool { return !m.Voter }); len(voters) < 2 {
		return nil // none to take it, and none to miss it
	}
	answered := make(chan error, 1)
	if err := n.adopt(func() { answered <- n.transfer(ctx) }); err != nil {
		return err
	}
	select {
	case err := <-answered:
		if err != nil && n.leads() {
			return fmt.Errorf("hand over the lead: %w", err)
		}
	case <-ctx.Done():
		return fmt.Errorf("hand over the lead: %w", ctx.Err())
	}
	for n.leader().ID == "" || n.leads() {
		if n.pause(ctx); ctx.Err() != nil {
			return fmt.Errorf("hand over the lead: %w", ctx.Err())
		}
	}
	return nil
}

// transfer asks raft, which bounds each try by its election timeout.
func (n *Node) transfer(ctx context.Context) (err error) {
	for range handOverTries {
		if err = n.raft().LeadershipTransfer().Error(); err == nil || !n.leads() || ctx.Err() != nil {
			break
		}
	}
	return err
}

// pause is between two tries of what needs a quorum.
func (n *Node) pause(ctx context.Context) {
	select {
	case <-n.config.Clock.After(retryPause):
	case <-ctx.Done():
	}
}

// tickInterval is short enough for a session to miss two ticks in a term.
func (n *Node) tickInterval() time.Duration {
	shortest := time.Duration(n.View().ShortestLeaseMs) * time.Millisecond
	if shortest == 0 {
		return n.config.TickInterval
	}
	return max(time.Millisecond, min(n.config.TickInterval, shortest/3))
}

// tick lets time pass once. It goes to the log once: a repeat would let it pass twice.
func (n *Node) tick(ctx context.Context, delta time.Duration) error {
	heard := n.takeHeard()
	answered := make(chan error, 1)
	n.Submit(&ledgerv1.Proposal{Command: &ledgerv1.Command{Kind: &ledgerv1.Command_Tick{Tick: &ledgerv1.Tick{
		DeltaMs: uint64(delta.Milliseconds()), Live: heard,
	}}}}, func(_ *ledgerv1.Result, err error) { answered <- err })
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return nil
	}
}

// takeHeard are the sessions that were heard from since the last call, ascending.
func (n *Node) takeHeard() []uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	heard := slices.Sorted(maps.Keys(n.heard))
	clear(n.heard)
	return heard
}

// nameCluster gives a new cluster its identity. If another leader was faster, its name stays.
func (n *Node) nameCluster(ctx context.Context) error {
	random := make([]byte, 32)
	if err := n.draw(random); err != nil {
		return fmt.Errorf("draw a cluster id: %w", err)
	}
	_, err := n.Propose(ctx, &ledgerv1.Proposal{Command: &ledgerv1.Command{
		Kind: &ledgerv1.Command_Bootstrap{Bootstrap: &ledgerv1.Bootstrap{ClusterId: random[:16], HashKey: random[16:]}},
	}})
	if err != nil {
		return fmt.Errorf("name the cluster: %w", err)
	}
	return nil
}
