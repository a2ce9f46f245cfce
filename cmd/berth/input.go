package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// readAll reads standard input to its end, or until ctx ends: a read from a terminal cannot be cut short otherwise.
func readAll(ctx context.Context, in *os.File) (string, error) {
	if term.IsTerminal(int(in.Fd())) {
		fmt.Fprintln(os.Stderr, "the text to continue, then Ctrl-D:")
	}
	type read struct {
		raw []byte
		err error
	}
	done := make(chan read, 1)
	go func() {
		raw, err := io.ReadAll(in)
		done <- read{raw, err}
	}()
	select {
	case r := <-done:
		return string(r.raw), r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// lineReader reads a conversation: with editing and a history from a terminal, else line by line, however long.
type lineReader struct {
	in    *os.File
	lines chan string // of an input that is no terminal
	fault chan error
	edit  *term.Terminal
}

func newLineReader(in *os.File) *lineReader {
	l := &lineReader{in: in}
	if term.IsTerminal(int(in.Fd())) {
		l.edit = term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{in, os.Stderr}, "> ")
		return l
	}
	l.lines, l.fault = make(chan string), make(chan error, 1)
	go func() {
		for b := bufio.NewReader(in); ; {
			line, err := b.ReadString('\n')
			if line != "" {
				l.lines <- line
			}
			if err != nil {
				l.fault <- err
				return
			}
		}
	}()
	return l
}

// next is the next line, io.EOF after the last. Ctrl-C at a terminal's prompt ends the input too.
func (l *lineReader) next(ctx context.Context) (string, error) {
	if l.edit != nil {
		return l.edited()
	}
	select {
	case line := <-l.lines:
		return strings.TrimSpace(line), nil
	case err := <-l.fault:
		return "", err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// edited reads a line in raw mode, which ends before anything else is printed.
func (l *lineReader) edited() (string, error) {
	before, err := term.MakeRaw(int(l.in.Fd()))
	if err != nil {
		return "", err
	}
	line, err := l.edit.ReadLine()
	if restored := term.Restore(int(l.in.Fd()), before); restored != nil {
		return "", errors.Join(err, restored)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr)
	}
	return strings.TrimSpace(line), err
}
