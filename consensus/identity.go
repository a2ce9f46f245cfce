package consensus

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"sync"
)

// idBytes is the length of a cluster's id.
const idBytes = 16

// identity is which cluster the disk is of, known before the log is read: in a file beside it.
type identity struct {
	path string // "": there is no disk
	mu   sync.Mutex
	id   []byte // nil while it is not known
}

// openIdentity reads what the disk says.
func openIdentity(path string) (*identity, error) {
	i := &identity{path: path}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return i, nil
	}
	if err != nil {
		return nil, err
	}
	if i.id, err = hex.DecodeString(string(bytes.TrimSpace(text))); err != nil || len(i.id) != idBytes {
		return nil, fmt.Errorf("%s is empty or cut off, and should have the id of the cluster: put another replica's file of that "+
			"name in its place, or remove it if there is no other", path)
	}
	return i, nil
}

func (i *identity) get() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.id
}

// is notes the cluster's id as the log has it. ErrForeign: the disk was another's.
func (i *identity) is(id []byte) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case id == nil || bytes.Equal(i.id, id):
		return nil
	case i.id != nil:
		return fmt.Errorf("%w: the log is of cluster %x, and the disk of %x", ErrForeign, id, i.id)
	}
	if i.path != "" {
		if err := replaceFile(i.path, []byte(hex.EncodeToString(id)+"\n")); err != nil {
			return err
		}
	}
	i.id = id
	return nil
}

// forget is for a disk without a log.
func (i *identity) forget() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.id = nil
	if err := os.Remove(i.path); i.path != "" && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// admits says whether one of cluster mine may speak raft with one of cluster theirs; nil is one that knows none yet. One
// that founds a cluster alone has no business with another.
func admits(mine, theirs []byte, alone bool) error {
	switch {
	case theirs == nil || bytes.Equal(mine, theirs):
		return nil
	case mine == nil && !alone:
		return nil
	}
	return fmt.Errorf("%w: it is of cluster %x, and this replica of %x", ErrForeign, theirs, mine)
}
