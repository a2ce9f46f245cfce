package consensus

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/types"
)

// files is what the log keeps its segments and its metadata in.
type files struct {
	vfs         types.VFS
	meta        types.MetaStore
	segmentSize int // 0: raft-wal's
}

func realFiles() files { return files{vfs: walfs.New(), meta: &metadb.BoltMetaDB{}} }

// watched are files whose faults w is told of. raft-wal itself tells its logger alone where the next segment cannot be made,
// and names no file.
func (f files) watched(dir string, w *writes) files {
	f.vfs = watchedVFS{f.vfs, w}
	f.meta = watchedMeta{f.meta, filepath.Join(dir, metadb.FileName), w}
	return f
}

type watchedVFS struct {
	types.VFS
	writes *writes
}

// Create implements types.VFS.
func (v watchedVFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := v.VFS.Create(dir, name, size)
	return v.watch(filepath.Join(dir, name), f, err)
}

// OpenWriter implements types.VFS.
func (v watchedVFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	f, err := v.VFS.OpenWriter(dir, name)
	return v.watch(filepath.Join(dir, name), f, err)
}

func (v watchedVFS) watch(path string, f types.WritableFile, err error) (types.WritableFile, error) {
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) { // which raft-wal asks for, to find out
			err = v.writes.check(inFile(path, err))
		}
		return nil, err
	}
	return watchedFile{f, path, v.writes}, nil
}

// Delete implements types.VFS.
func (v watchedVFS) Delete(dir, name string) error {
	err := v.VFS.Delete(dir, name)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return v.writes.check(inFile(filepath.Join(dir, name), err))
}

type watchedFile struct {
	types.WritableFile
	path   string
	writes *writes
}

// WriteAt implements types.WritableFile.
func (f watchedFile) WriteAt(data []byte, at int64) (int, error) {
	n, err := f.WritableFile.WriteAt(data, at)
	return n, f.writes.check(inFile(f.path, err))
}

// Sync implements types.WritableFile.
func (f watchedFile) Sync() error { return f.writes.check(inFile(f.path, f.WritableFile.Sync())) }

type watchedMeta struct {
	types.MetaStore
	path   string
	writes *writes
}

// CommitState implements types.MetaStore.
func (m watchedMeta) CommitState(s types.PersistentState) error {
	return m.writes.check(inFile(m.path, m.MetaStore.CommitState(s)))
}

// SetStable implements types.MetaStore.
func (m watchedMeta) SetStable(key, value []byte) error {
	return m.writes.check(inFile(m.path, m.MetaStore.SetStable(key, value)))
}

// inFile is an error that names the file; nil if there is none.
func inFile(path string, err error) error {
	if known := (*fs.PathError)(nil); err == nil || errors.As(err, &known) && known.Path == path {
		return err
	}
	return fmt.Errorf("%s: %w", path, err)
}

// replaceFile gives a file new contents, all of them or none, whenever the machine stops.
func replaceFile(path string, data []byte) (err error) {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes renames and removals in a folder last.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
