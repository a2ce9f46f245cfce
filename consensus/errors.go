package consensus

import "errors"

var (
	// ErrNoQuorum says that this node cannot commit now. The proposal may have been appended all the same; who resends
	// it under the same session and sequence, or with the same nonce, has it applied once.
	ErrNoQuorum = errors.New("consensus: no quorum")
	// ErrClosed says that the node or the session was closed.
	ErrClosed = errors.New("consensus: closed")
	// ErrFenced says that the router's session ended: its reservations that no worker had claimed are being dropped.
	ErrFenced = errors.New("consensus: session fenced")
	// ErrInUse says that another process has the directory.
	ErrInUse = errors.New("consensus: directory in use")
)
