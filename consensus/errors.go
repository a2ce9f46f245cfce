package consensus

import (
	"errors"
	"fmt"
)

var (
	// ErrNoQuorum says that this node cannot commit now. The proposal may have been appended all the same; who resends
	// it under the same session and sequence, or with the same nonce, has it applied once.
	ErrNoQuorum = errors.New("consensus: no quorum")
	// ErrClosed says that the node or the session was closed.
	ErrClosed = errors.New("consensus: closed")
	// ErrFailed says that the node's disk takes no writes, or that what is on it is damaged or written by a newer version: the
	// process must end.
	// It is an ErrClosed too.
	ErrFailed = fmt.Errorf("%w: the node failed", ErrClosed)
	// ErrForeign says that the directory belongs to another node.
	ErrForeign = errors.New("consensus: the log belongs to another id")
	// ErrRemoved says that the node is no member of its cluster.
	ErrRemoved = errors.New("consensus: no member")
	// ErrMember says that a change of the members makes no sense.
	ErrMember = errors.New("consensus: members")
	// ErrFenced says that the router's session ended: its reservations that no worker had claimed are being dropped.
	ErrFenced = errors.New("consensus: session fenced")
	// ErrInUse says that another process has the directory.
	ErrInUse = errors.New("consensus: directory in use")
)
