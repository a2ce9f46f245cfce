package consensus

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// instanceBytes is the length of what tells one disk of a replica from another.
const instanceBytes = 8

// holder is whose disk this is: a replica's name, and an instance that is drawn anew for each empty disk. The cluster's
// members name the instance that has the seat, so two disks of one name cannot share its vote.
type holder struct {
	path     string // "": there is no disk
	name     string
	instance string // "": the disk is from before there were instances, or in memory
}

// openHolder reads whose disk it is, which must be name's.
func openHolder(path, name string) (holder, error) {
	h := holder{path: path, name: name}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return h, err
	}
	fields := strings.Fields(string(text))
	if len(fields) != 2 {
		return h, fmt.Errorf("%s should have a replica's name and instance: remove it if this folder is that of %s", path, name)
	}
	if fields[0] != name {
		return h, fmt.Errorf("%w: it is the folder of replica %s, not of %s: give each its own --data", ErrForeign, fields[0], name)
	}
	h.instance = fields[1]
	return h, nil
}

// draw gives the disk an instance and keeps it.
func (h *holder) draw(random io.Reader) error {
	raw := make([]byte, instanceBytes)
	if _, err := io.ReadFull(random, raw); err != nil {
		return fmt.Errorf("draw a replica's instance: %w", err)
	}
	h.instance = hex.EncodeToString(raw)
	if h.path == "" {
		return nil
	}
	return replaceFile(h.path, []byte(h.name+" "+h.instance+"\n"))
}

// self is this replica with its disk.
func (n *Node) self() Peer {
	p := n.seat.self
	p.instance = n.seat.holder.instance
	return p
}

// due says why a member's seat is not for who asks for it: another process of that name lives, or another disk has it.
func (n *Node) due(ctx context.Context, m *Member, q *ledgerv1.JoinRequest) error {
	if m.ID == n.config.ID {
		if bytes.Equal(q.Process, n.process) {
			return nil
		}
		return fmt.Errorf("%w: a replica %s lives and leads: another must have a name of its own", ErrForeign, m.ID)
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	there, err := n.meetAt(ctx, m.RPC)
	if err == nil && there.Id == m.ID && len(there.Process) > 0 && !bytes.Equal(there.Process, q.Process) {
		return fmt.Errorf("%w: a replica %s lives at %s: another must have a name and a folder of its own", ErrForeign, m.ID, m.RPC)
	}
	if instance := q.GetMember().GetInstance(); !q.Empty && m.instance != "" && instance != m.instance {
		return fmt.Errorf("%w: the seat of %s is that of another disk, %s: this one, %s, must be emptied to get it", ErrForeign, m.ID,
			m.instance, instance)
	}
	return nil
}

// hello is what this side of a connection of raft says of itself.
func (n *Node) hello() *ledgerv1.Hello {
	h := &ledgerv1.Hello{ClusterId: n.seat.identity.get(), Replica: n.config.ID, Instance: n.seat.holder.instance}
	if r := n.raft(); r != nil {
		h.Applied = r.AppliedIndex()
	}
	return h
}

// judge says why raft is not to be spoken with who says h: it is of another cluster, has this replica's name, or has the name
// of a member and not its disk. Who has applied more than this replica knows better.
func (n *Node) judge(h *ledgerv1.Hello) error {
	if err := admits(n.seat.identity.get(), h.ClusterId, len(n.seat.founders) == 1); err != nil {
		return err
	}
	if h.Replica == n.config.ID {
		return fmt.Errorf("%w: two replicas have the name %s", ErrForeign, h.Replica)
	}
	r := n.raft()
	if r == nil {
		return nil
	}
	m := n.member(h.Replica)
	if m != nil && m.instance != "" && m.instance != h.Instance && h.Applied <= r.AppliedIndex() {
		return fmt.Errorf("%w: the seat of %s is that of another disk, %s, not of %s", ErrForeign, m.ID, m.instance, h.Instance)
	}
	return nil
}

// told takes note that a peer refuses this replica. It is the leader who says whether it is right, see greet.
func (n *Node) told(peer, why string) {
	n.refused.Store(true)
	n.config.Log.Warn("a replica refuses to speak with this one", "node", n.config.ID, "peer", peer, "reason", why)
}
