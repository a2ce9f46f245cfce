package router

// output is where an answer goes: server-sent events, or one JSON body. An error of any method means that the client is
// gone.
type output interface {
	// begin says that a worker has begun; it may be called again when another worker takes over before the first token.
	begin() error
	// delta is the next piece: text that may be empty, and the ids that it came of.
	delta(text string, ids []int32) error
	// end says how the answer ended.
	end(f finish) error
}
