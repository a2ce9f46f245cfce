package jinja

// Names are bound to places when a template is compiled, as jinja2 does: a scope knows all names of its body before any
// of it runs. A name that is only read is that of the scope around, or a variable of the render; one that is set
// anywhere in the body is the scope's own from its beginning, with what the scope around has for it then.

// routine is something that runs with places of its own for all scopes inside it: the template, a macro, a call's body,
// a recursive loop.
type routine struct {
	size  int
	depth int
}

// local is a place of a routine.
type local struct {
	fn    *routine
	index int
	used  bool
}

// ref is where a place is found: hops routines out.
type ref struct{ hops, index int }

// load says what a place holds when its scope is entered: what another place or the render's variable of this name
// holds, or nothing.
type load struct {
	index int
	name  string // of a variable
	from  *ref
}

// scopeEntry is what happens to places when a scope is entered; all of them are emptied when it is left.
type scopeEntry struct {
	loads []load
	all   []int
}

// scope is one while it is compiled.
type scope struct {
	up    *scope
	fn    *routine
	names map[string]*local
	top   bool
}

func (s *scope) find(name string) *local {
	for ; s != nil; s = s.up {
		if l := s.names[name]; l != nil {
			return l
		}
	}
	return nil
}

func (s *scope) ref(l *local) ref { return ref{s.fn.depth - l.fn.depth, l.index} }

// own makes a place for a name.
func (s *scope) own(name string) *local {
	l := &local{fn: s.fn, index: s.fn.size}
	s.fn.size++
	s.names[name] = l
	return l
}

// mention is how a scope's body uses a name.
type mention struct {
	stored bool
	plain  bool // the first mention sets it, and not under a condition
}

// survey finds the names of one scope's body, in order of their first mention.
type survey struct {
	found map[string]*mention
	order []string
	under int // conditions
}

func (v *survey) note(name string) (m *mention, first bool) {
	if m := v.found[name]; m != nil {
		return m, false
	}
	m = &mention{}
	v.found[name] = m
	v.order = append(v.order, name)
	return m, true
}

func (v *survey) load(e expr) {
	if e == nil {
		return
	}
	if n, ok := e.(*variable); ok {
		v.note(n.name)
	}
	e.each(v.load)
}

func (v *survey) store(target expr) {
	switch t := target.(type) {
	case *variable:
		v.name(t.name)
	case *tupleOf:
		for _, item := range t.items {
			v.store(item)
		}
	case *part:
		v.load(t.space)
	}
}

// name notes that a name is set.
func (v *survey) name(name string) {
	m, first := v.note(name)
	m.stored = true
	m.plain = m.plain || first && v.under == 0
}

func (v *survey) body(list []stmt) {
	for _, s := range list {
		v.stmt(s)
	}
}

// stmt notes what a statement does in this scope; what it does in scopes inside is left to them.
func (v *survey) stmt(s stmt) {
	switch s := s.(type) {
	case *output:
		v.load(s.of)
	case *branch:
		v.load(s.tests[0])
		v.under++
		for i, body := range s.bodies {
			if i > 0 && i < len(s.tests) {
				v.load(s.tests[i])
			}
			v.body(body)
		}
		v.under--
	case *forLoop:
		v.load(s.iter)
	case *assign:
		v.load(s.value)
		v.store(s.target)
	case *capture:
		v.store(s.target)
	case *macroDef:
		v.name(s.name)
	case *callBlock:
		if s.call != nil {
			v.load(s.call)
		}
	case *filterBlock:
		v.load(s.filter)
	case *with:
		for _, e := range s.values {
			v.load(e)
		}
	}
}

// settle gives a scope its places after its parameters have theirs, and says what they hold at first.
func (s *scope) settle(visit func(*survey)) scopeEntry {
	v := &survey{found: map[string]*mention{}}
	visit(v)
	var entry scopeEntry
	for _, name := range v.order {
		m := v.found[name]
		if s.names[name] != nil {
			continue
		}
		outer := s.up.find(name)
		if outer != nil && !m.stored {
			continue
		}
		l := s.own(name)
		switch {
		case outer != nil:
			outer.used = true
			at := s.ref(outer)
			entry.loads = append(entry.loads, load{index: l.index, from: &at})
		case m.plain:
			entry.loads = append(entry.loads, load{index: l.index})
		default:
			entry.loads = append(entry.loads, load{index: l.index, name: name})
		}
	}
	for _, l := range s.names {
		entry.all = append(entry.all, l.index)
	}
	return entry
}
