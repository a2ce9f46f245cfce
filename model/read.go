package model

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Bounds of the files beside the weights: far above those of any published model, far below what would fill a machine's
// memory.
const (
	maxText     = 256 << 20 // of a JSON file: tokenizers of a quarter of a million tokens have 40 MB
	maxTemplate = 4 << 20
)

// openRegular opens a regular file to read. Anything else could keep the reader for good (a pipe), or never end (a device):
// it is a *WeightsError.
func openRegular(path string) (*os.File, int64, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // or opening a pipe would wait for its writer
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &WeightsError{File: path, Offset: -1, What: fmt.Sprintf("not a regular file (%v)", info.Mode())}
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, info.Size(), nil
}

// readRegular reads a whole regular file of at most limit bytes. One that is none, or longer, is a *WeightsError.
func readRegular(path string, limit int64) ([]byte, error) {
	f, size, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if size > limit {
		return nil, &WeightsError{File: path, Offset: -1, What: fmt.Sprintf("%d bytes, at most %d are read", size, limit)}
	}
	raw := make([]byte, size)
	if _, err := io.ReadFull(f, raw); err != nil {
		return nil, &WeightsError{File: path, Offset: -1, What: fmt.Sprintf("cut short while it was read: %v", err)}
	}
	return raw, nil
}

// ReadTemplate reads a file with a chat template.
func ReadTemplate(path string) ([]byte, error) { return readRegular(path, maxTemplate) }

// Guard runs f, which reads mapped files of the model at path, on this goroutine. A page that is gone, since its file was
// cut short or its disk fails, is a *WeightsError: without Guard it ends the process.
func Guard(path string, f func()) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			err = &WeightsError{File: path, Offset: -1, What: "a part of it is gone: it was cut short while it was read, or its disk fails"}
		default:
			panic(r)
		}
	}()
	f()
	return nil
}
