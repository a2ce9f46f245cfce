package jinja

import "fmt"

// Kind says what went wrong.
type Kind int

const (
	Syntax    Kind = iota + 1 // the source cannot be compiled
	Undefined                 // something was done with a value that is not there
	Runtime                   // an operation refused its operands, as Python's would
	Security                  // the sandbox forbids the attribute
	Raised                    // the template called raise_exception
)

// Error is how a template fails by its own fault or that of what it was given.
type Error struct {
	Kind    Kind
	Line    int    // of the source, from 1; 0 if it is not known
	Type    string // Python's name of a Runtime error, such as TypeError
	Message string
}

// Error is the message alone for what the template itself raised, which is written for the user who sees it.
func (e *Error) Error() string {
	text := e.Message
	if e.Type != "" {
		text = e.Type + ": " + text
	}
	if e.Kind == Raised || e.Line == 0 {
		return text
	}
	return fmt.Sprintf("line %d: %s", e.Line, text)
}

// LimitError says that a template wanted more than it is allowed.
type LimitError struct {
	Limit string // "fuel", "output", "value", "memory", "depth", "source" or "nesting"
	Max   int64
	Line  int
}

func (e *LimitError) Error() string {
	text := fmt.Sprintf("the template went over its limit of %d of %s", e.Max, e.Limit)
	if e.Line == 0 {
		return text
	}
	return fmt.Sprintf("line %d: %s", e.Line, text)
}

// at gives an error its line, if it has none.
func at(err error, line int) error {
	switch e := err.(type) {
	case *Error:
		if e.Line == 0 {
			e.Line = line
		}
	case *LimitError:
		if e.Line == 0 {
			e.Line = line
		}
	}
	return err
}

func syntaxError(line int, format string, a ...any) error {
	return &Error{Kind: Syntax, Line: line, Message: fmt.Sprintf(format, a...)}
}

func typeError(format string, a ...any) error { return failure("TypeError", format, a...) }

func valueError(format string, a ...any) error { return failure("ValueError", format, a...) }

func failure(kind, format string, a ...any) error {
	return &Error{Kind: Runtime, Type: kind, Message: fmt.Sprintf(format, a...)}
}
