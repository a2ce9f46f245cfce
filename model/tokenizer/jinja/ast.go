package jinja

// expr is an expression. each shows its direct parts, in the order of their evaluation as far as names go.
type expr interface {
	eval(r *run) (Value, error)
	each(show func(expr))
}

type (
	constant struct{ value Value }
	variable struct {
		name string
		line int
		at   ref
	}
	attribute struct {
		of     expr
		name   string
		onDict access
		onStr  access
	}
	subscript struct{ of, arg expr }
	slicing   struct{ of, start, stop, step expr } // those left out are nil
	invoke    struct {
		fn   expr
		args arguments
	}
	filtered struct {
		of   expr // nil: the text of the block around it
		name string
		line int
		with *method
		args arguments
	}
	tested struct {
		of   expr
		name string
		line int
		with *method
		args arguments
	}
	listOf  struct{ items []expr }
	tupleOf struct{ items []expr }
	dictOf  struct{ keys, vals []expr }
	unary   struct {
		op byte // '-' or '+'
		of expr
	}
	binary struct {
		op          string
		left, right expr
	}
	joined   struct{ parts []expr }
	compared struct {
		first expr
		ops   []string
		rest  []expr
	}
	logic struct {
		or          bool
		left, right expr
	}
	not    struct{ of expr }
	choice struct {
		test, yes, no expr // no may be nil
		line          int
	}
	// part is a namespace's attribute as the target of a set.
	part struct {
		space *variable
		name  string
	}
)

// arguments are those of a call.
type arguments struct {
	pos        []expr
	names      []string
	named      []expr
	star, pair expr // *star, **pair
}

func (a *arguments) each(show func(expr)) {
	for _, e := range a.pos {
		show(e)
	}
	for _, e := range a.named {
		show(e)
	}
	some(show, a.star, a.pair)
}

func some(show func(expr), list ...expr) {
	for _, e := range list {
		if e != nil {
			show(e)
		}
	}
}

func (*constant) each(func(expr))         {}
func (*variable) each(func(expr))         {}
func (e *attribute) each(show func(expr)) { show(e.of) }
func (e *subscript) each(show func(expr)) { some(show, e.of, e.arg) }
func (e *slicing) each(show func(expr))   { some(show, e.of, e.start, e.stop, e.step) }
func (e *invoke) each(show func(expr))    { show(e.fn); e.args.each(show) }
func (e *filtered) each(show func(expr))  { some(show, e.of); e.args.each(show) }
func (e *tested) each(show func(expr))    { show(e.of); e.args.each(show) }
func (e *listOf) each(show func(expr))    { some(show, e.items...) }
func (e *tupleOf) each(show func(expr))   { some(show, e.items...) }
func (e *dictOf) each(show func(expr))    { some(show, e.keys...); some(show, e.vals...) }
func (e *unary) each(show func(expr))     { show(e.of) }
func (e *binary) each(show func(expr))    { some(show, e.left, e.right) }
func (e *joined) each(show func(expr))    { some(show, e.parts...) }
func (e *compared) each(show func(expr))  { show(e.first); some(show, e.rest...) }
func (e *logic) each(show func(expr))     { some(show, e.left, e.right) }
func (e *not) each(show func(expr))       { show(e.of) }
func (e *choice) each(show func(expr))    { some(show, e.test, e.yes, e.no) }
func (e *part) each(show func(expr))      { show(e.space) }

// stmt is a statement.
type stmt interface {
	exec(r *run) (flow, error)
	where() int
}

// flow says how a statement ended.
type flow int

const (
	onward flow = iota
	broken
	continued
)

type line int

func (l line) where() int { return int(l) }

type (
	literal struct {
		line
		text string
	}
	output struct {
		line
		of expr
	}
	branch struct {
		line
		tests  []expr
		bodies [][]stmt // one more than tests if there is an else
	}
	forLoop struct {
		line
		target            expr
		iter, test        expr
		body, orElse      []stmt
		recursive         bool
		fn                *routine // of a recursive loop
		loop              *local
		inner, tests, els scopeEntry
		testTarget        expr
	}
	assign struct {
		line
		target expr
		value  expr
		export bool
	}
	capture struct {
		line
		target expr
		filter expr // nil if there is none
		body   []stmt
		inner  scopeEntry
		export bool
	}
	macroDef struct {
		line
		name   string
		slot   ref
		code   *macroCode
		export bool
	}
	callBlock struct {
		line
		call *invoke // nil: the generation tag, whose body is output as it is
		code *macroCode
	}
	filterBlock struct {
		line
		filter expr
		body   []stmt
		inner  scopeEntry
	}
	with struct {
		line
		targets []expr
		values  []expr
		body    []stmt
		inner   scopeEntry
	}
	scoped struct { // a body with names of its own
		line
		body  []stmt
		inner scopeEntry
	}
	block struct {
		line
		name   string
		shared bool // it sees the names around it
		body   []stmt
		code   *macroCode
	}
	leave struct {
		line
		how flow
	}
)
