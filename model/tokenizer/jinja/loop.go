package jinja

// loop is what a template sees as the loop that it is in.
type loop struct {
	over     Value
	iter     iterator
	index0   int
	depth0   int
	length   int   // −1: not known yet
	ahead    Value // the next item, if it was looked at
	end      bool  // there is none
	now, was Value
	changed  Value
	again    func(r *run, over Value, depth int) (string, error) // of a recursive loop
}

// peek looks at the next item.
func (l *loop) peek(r *run) (more bool, err error) {
	if l.ahead != nil || l.end {
		return !l.end, nil
	}
	v, ok, err := l.iter.next(r)
	if err != nil {
		return false, err
	}
	l.ahead, l.end = v, !ok
	return ok, nil
}

// step goes to the next item.
func (l *loop) step(r *run) (more bool, err error) {
	if more, err = l.peek(r); !more || err != nil {
		return false, err
	}
	l.index0++
	l.was, l.now, l.ahead = l.now, l.ahead, nil
	return true, nil
}

// size is how many items there are; those that are not known yet are fetched for it.
func (l *loop) size(r *run) (int, error) {
	if l.length >= 0 {
		return l.length, nil
	}
	if n, ok := size(l.over); ok {
		l.length = n
		return n, nil
	}
	var rest []Value
	if more, err := l.peek(r); err != nil {
		return 0, err
	} else if more {
		if rest, err = r.drain(l.iter); err != nil {
			return 0, err
		}
		l.iter = &sequence{items: rest}
		l.length = len(rest) + 1 + l.index0 + 1
		return l.length, nil
	}
	l.length = l.index0 + 1
	return l.length, nil
}

func (s *forLoop) exec(r *run) (flow, error) {
	over, err := r.eval(s.iter)
	if err != nil {
		return onward, err
	}
	if !s.recursive {
		return s.pass(r, over, 0)
	}
	text, err := s.again(r, r.env, over, 0)
	if err != nil {
		return onward, err
	}
	return onward, r.write(text)
}

// again runs a recursive loop, whose routine stands in env.
func (s *forLoop) again(r *run, env *places, over Value, depth int) (string, error) {
	if err := r.down(); err != nil {
		return "", err
	}
	defer r.up()
	if err := r.build(16 * s.fn.size); err != nil {
		return "", err
	}
	caller := r.env
	r.env = &places{make([]Value, s.fn.size), env}
	text, err := r.captured(func() error {
		_, err := s.pass(r, over, depth)
		return err
	})
	r.env = caller
	return text, err
}

// pass runs all passes of a loop.
func (s *forLoop) pass(r *run, over Value, depth int) (flow, error) {
	if err := r.down(); err != nil {
		return onward, err
	}
	defer r.up()
	it, err := r.iterate(over)
	if err != nil {
		return onward, err
	}
	l := &loop{over: over, iter: it, index0: -1, depth0: depth, length: -1}
	if s.recursive {
		env := r.env.up
		l.again = func(r *run, over Value, depth int) (string, error) { return s.again(r, env, over, depth) }
	}
	if s.test != nil {
		l.over, l.iter = nil, &sieve{s, it, r.env}
		r.enter(&s.tests)
		defer r.exit(&s.tests)
	}
	none, err := s.passes(r, l)
	r.exit(&s.inner)
	if err != nil || !none || s.orElse == nil {
		return onward, err
	}
	r.enter(&s.els)
	defer r.exit(&s.els)
	return r.body(s.orElse)
}

// passes runs the body for each item; none says that no pass came to its end, which is when an else part runs.
func (s *forLoop) passes(r *run, l *loop) (none bool, err error) {
	none = true
	for {
		var v Value
		if s.loop.used {
			more, err := l.step(r)
			if err != nil || !more {
				return none, err
			}
			v = l.now
		} else {
			item, more, err := l.iter.next(r)
			if err != nil || !more {
				return none, err
			}
			v = item
		}
		if err := r.step(1); err != nil {
			return none, err
		}
		if s.loop.used {
			r.env.slots[s.loop.index] = l
		}
		if err := r.set(s.target, v, false); err != nil {
			return none, err
		}
		r.enter(&s.inner)
		how, err := r.body(s.body)
		if err != nil {
			return none, err
		}
		switch how {
		case broken:
			return none, nil
		case onward:
			none = false
		}
	}
}

// sieve gives those items for which a loop's condition holds, asked when the loop comes to them.
type sieve struct {
	of   *forLoop
	iter iterator
	env  *places
}

func (s *sieve) next(r *run) (Value, bool, error) {
	if err := r.down(); err != nil {
		return nil, false, err
	}
	defer r.up()
	caller := r.env
	r.env = s.env
	defer func() { r.env = caller }()
	for {
		v, ok, err := s.iter.next(r)
		if err != nil || !ok {
			return nil, false, err
		}
		if err := r.set(s.of.testTarget, v, false); err != nil {
			return nil, false, err
		}
		held, err := r.eval(s.of.test)
		if err != nil {
			return nil, false, err
		}
		if truth(held) {
			return v, true, nil
		}
	}
}
