package router

// output is where an answer goes: server-sent events, or one JSON body. An error of any method means that the client is
// gone.
//
// Choices come at the same time, in any order; each is named by its prompt's request and its branch.
type output interface {
	// begin says that a worker has begun with a prompt; it may be called again when another worker takes over before the
	// first token.
	begin(q *request) error
	// delta is a choice's next piece.
	delta(q *request, branch int, p piece) error
	// end says how a choice ended.
	end(q *request, branch int, f finish) error
	// done says that all choices have ended.
	done(u usage) error
}

// piece is a part of a choice: text that may be empty, the ids that it came of, and what is known of tokens.
type piece struct {
	text   string
	ids    []int32
	tokens []token
}
