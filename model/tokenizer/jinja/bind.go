package jinja

import "slices"

// binder binds the names of a tree to places, and those of filters and tests to what they are.
type binder struct {
	blocks  map[string]bool
	soft    bool // under a condition, where a filter that does not exist fails only if it is reached
	inLoop  bool // anywhere inside of one: loop cannot be set
	exports bool // blocks see the names that the template sets
}

// bindTemplate binds a whole template; its routine is that of all names outside of macros.
func bindTemplate(body []stmt) (*macroCode, error) {
	b := &binder{blocks: map[string]bool{}, exports: hasBlock(body)}
	code := &macroCode{body: body, fn: &routine{}}
	s := &scope{fn: code.fn, names: map[string]*local{}, top: true}
	code.inner = s.settle(func(v *survey) { v.body(body) })
	return code, b.body(s, body)
}

// hasBlock looks through what can hold blocks without a routine of its own.
func hasBlock(list []stmt) bool {
	return slices.ContainsFunc(list, func(s stmt) bool {
		switch s := s.(type) {
		case *block:
			return true
		case *branch:
			return slices.ContainsFunc(s.bodies, hasBlock)
		case *forLoop:
			return hasBlock(s.body) || hasBlock(s.orElse)
		case *with:
			return hasBlock(s.body)
		case *scoped:
			return hasBlock(s.body)
		case *capture:
			return hasBlock(s.body)
		case *filterBlock:
			return hasBlock(s.body)
		case *macroDef:
			return hasBlock(s.code.body)
		case *callBlock:
			return hasBlock(s.code.body)
		}
		return false
	})
}

func (b *binder) body(s *scope, list []stmt) error {
	for _, one := range list {
		if err := b.stmt(s, one); err != nil {
			return at(err, one.where())
		}
	}
	return nil
}

func (b *binder) stmt(s *scope, one stmt) error {
	switch one := one.(type) {
	case *output:
		return b.expr(s, one.of)
	case *branch:
		return b.branch(s, one)
	case *forLoop:
		return b.loop(s, one)
	case *assign:
		one.export = s.top && b.exports
		if err := b.expr(s, one.value); err != nil {
			return err
		}
		return b.target(s, one.target)
	case *capture:
		one.export = s.top && b.exports
		if err := b.target(s, one.target); err != nil {
			return err
		}
		return b.inner(s, &one.inner, one.body, one.filter)
	case *macroDef:
		one.export = s.top && b.exports
		one.slot = s.ref(s.find(one.name))
		return b.routine(s, one.code)
	case *callBlock:
		if one.call != nil {
			if err := b.expr(s, one.call); err != nil {
				return err
			}
		}
		return b.routine(s, one.code)
	case *filterBlock:
		return b.inner(s, &one.inner, one.body, one.filter)
	case *with:
		return b.with(s, one)
	case *scoped:
		return b.inner(s, &one.inner, one.body, nil)
	case *block:
		return b.block(s, one)
	}
	return nil
}

func (b *binder) branch(s *scope, one *branch) error {
	soft := b.soft
	b.soft = true
	defer func() { b.soft = soft }()
	for _, test := range one.tests {
		if err := b.expr(s, test); err != nil {
			return err
		}
	}
	for _, body := range one.bodies {
		if err := b.body(s, body); err != nil {
			return err
		}
	}
	return nil
}

// hard binds what stands in a scope of its own, which is not under the conditions around it.
func (b *binder) hard(bind func() error) error {
	soft := b.soft
	b.soft = false
	defer func() { b.soft = soft }()
	return bind()
}

// inner binds a body with names of its own, and a filter over its text.
func (b *binder) inner(s *scope, entry *scopeEntry, body []stmt, filter expr) error {
	in := &scope{up: s, fn: s.fn, names: map[string]*local{}}
	*entry = in.settle(func(v *survey) { v.load(filter); v.body(body) })
	return b.hard(func() error {
		if filter != nil {
			if err := b.expr(in, filter); err != nil {
				return err
			}
		}
		return b.body(in, body)
	})
}

func (b *binder) with(s *scope, one *with) error {
	for _, e := range one.values {
		if err := b.expr(s, e); err != nil {
			return err
		}
	}
	in := &scope{up: s, fn: s.fn, names: map[string]*local{}}
	for _, t := range one.targets {
		in.params(t)
	}
	one.inner = in.settle(func(v *survey) { v.body(one.body) })
	return b.hard(func() error {
		for _, t := range one.targets {
			if err := b.target(in, t); err != nil {
				return err
			}
		}
		return b.body(in, one.body)
	})
}

// params makes places for the names of a target.
func (s *scope) params(target expr) {
	switch t := target.(type) {
	case *variable:
		if s.names[t.name] == nil {
			s.own(t.name)
		}
	case *tupleOf:
		for _, item := range t.items {
			s.params(item)
		}
	}
}

func (b *binder) loop(s *scope, one *forLoop) error {
	if err := b.expr(s, one.iter); err != nil {
		return err
	}
	around := b.inLoop
	b.inLoop = true
	defer func() { b.inLoop = around }()
	fn := s.fn
	if one.recursive {
		fn = &routine{depth: s.fn.depth + 1}
		one.fn = fn
	}
	in := &scope{up: s, fn: fn, names: map[string]*local{}}
	one.loop = in.own("loop")
	one.loop.used = one.recursive
	in.params(one.target)
	one.inner = in.settle(func(v *survey) { v.body(one.body) })
	return b.hard(func() error {
		if err := b.target(in, one.target); err != nil {
			return err
		}
		if err := b.body(in, one.body); err != nil {
			return err
		}
		if one.test != nil {
			if err := b.loopTest(s, fn, one); err != nil {
				return err
			}
		}
		els := &scope{up: s, fn: fn, names: map[string]*local{}}
		one.els = els.settle(func(v *survey) { v.body(one.orElse) })
		return b.body(els, one.orElse)
	})
}

// loopTest binds a loop's condition, which sees the target in places of its own.
func (b *binder) loopTest(s *scope, fn *routine, one *forLoop) error {
	in := &scope{up: s, fn: fn, names: map[string]*local{}}
	in.params(one.target)
	one.tests = in.settle(func(v *survey) { v.load(one.test) })
	one.testTarget = clone(one.target)
	if err := b.target(in, one.testTarget); err != nil {
		return err
	}
	return b.expr(in, one.test)
}

// clone is a target to be bound once more.
func clone(target expr) expr {
	switch t := target.(type) {
	case *variable:
		return &variable{name: t.name, line: t.line}
	case *tupleOf:
		c := &tupleOf{}
		for _, item := range t.items {
			c.items = append(c.items, clone(item))
		}
		return c
	}
	return target
}

func (b *binder) routine(s *scope, code *macroCode) error {
	code.fn = &routine{depth: s.fn.depth + 1}
	in := &scope{up: s, fn: code.fn, names: map[string]*local{}}
	for _, p := range code.params {
		if in.names[p] != nil {
			return syntaxError(0, "duplicate argument '%s' in the definition of a macro", p)
		}
		code.slots = append(code.slots, in.own(p).index)
	}
	special := func(name string) *local {
		if slices.Contains(code.params, name) {
			return nil
		}
		return in.own(name)
	}
	code.caller, code.kwargs, code.varargs = special("caller"), special("kwargs"), special("varargs")
	code.inner = in.settle(func(v *survey) {
		for _, e := range code.defaults {
			v.load(e)
		}
		v.body(code.body)
	})
	return b.hard(func() error {
		for _, e := range code.defaults {
			if err := b.expr(in, e); err != nil {
				return err
			}
		}
		return b.body(in, code.body)
	})
}

// block binds a block, which sees only the render's variables unless it is scoped.
func (b *binder) block(s *scope, one *block) error {
	if b.blocks[one.name] {
		return syntaxError(0, "block '%s' defined twice", one.name)
	}
	b.blocks[one.name] = true
	one.code.fn = &routine{depth: s.fn.depth + 1}
	in := &scope{fn: one.code.fn, names: map[string]*local{}}
	if one.shared {
		in.up = s
	}
	one.code.inner = in.settle(func(v *survey) { v.body(one.body) })
	return b.hard(func() error { return b.body(in, one.body) })
}

func (b *binder) target(s *scope, e expr) error {
	switch t := e.(type) {
	case *variable:
		if t.name == "loop" && b.inLoop {
			return syntaxError(t.line, "Can't assign to special loop variable in for-loop target")
		}
		t.at = s.ref(s.find(t.name))
	case *tupleOf:
		for _, item := range t.items {
			if err := b.target(s, item); err != nil {
				return err
			}
		}
	case *part:
		return b.expr(s, t.space)
	}
	return nil
}

// expr binds an expression and all its parts.
func (b *binder) expr(s *scope, e expr) (err error) {
	switch e := e.(type) {
	case *variable:
		l := s.find(e.name)
		l.used = true
		e.at = s.ref(l)
		s.special(e.name)
	case *filtered:
		if e.with = filters[e.name]; e.with == nil {
			err = b.missing("filter", e.name, e.line)
		}
	case *tested:
		if e.with = tests[e.name]; e.with == nil {
			err = b.missing("test", e.name, e.line)
		}
	case *choice:
		soft := b.soft
		b.soft = true
		defer func() { b.soft = soft }()
	}
	e.each(func(inner expr) {
		if err == nil {
			err = b.expr(s, inner)
		}
	})
	return err
}

// special notes that a routine takes what its special names stand for, as all around it do that could.
func (s *scope) special(name string) {
	if name != "caller" && name != "kwargs" && name != "varargs" {
		return
	}
	for ; s != nil; s = s.up {
		if l := s.names[name]; l != nil {
			l.used = true
		}
	}
}

func (b *binder) missing(what, name string, line int) error {
	if why, known := unsupported[name]; known && what == "filter" {
		return syntaxError(line, "the filter '%s' is not supported: %s", name, why)
	}
	if b.soft {
		return nil
	}
	return syntaxError(line, "No %s named '%s'.", what, name)
}
