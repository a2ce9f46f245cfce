package router

import (
	"bytes"

	workerv1 "github.com/berthd/berth/api/worker/v1"
)

const (
	maxBranches = 128  // choices of a prompt, those that best_of drops included
	maxChoices  = 2048 // of all prompts of a request
	maxLikely   = 20   // likeliest tokens beside each token
)

// choices are how many answers a request wants, and what it wants to know of their tokens.
type choices struct {
	n         int
	bestOf    int  // branches of which the n likeliest are given, ≥ n
	logprobs  bool // of generated tokens, and of the prompt's if they are echoed
	top       int  // likeliest tokens beside each
	echo      bool // the prompt's text goes before the answer's
	promptTop int  // likeliest tokens beside each of the prompt's; −1: the prompt's log-probabilities are not wanted
}

func readChoices(f *fields, chat, stream bool) choices {
	c := choices{n: int(f.integer("n", 1, 1, maxBranches)), promptTop: int(f.integer("prompt_logprobs", -1, 0, maxLikely))}
	c.bestOf = c.n
	if chat {
		c.readChatLogprobs(f)
	} else {
		c.echo = f.boolean("echo", false)
		if b := int(f.integer("best_of", 0, 0, maxBranches)); b > 0 {
			c.bestOf = b
		}
		if raw, ok := f.get("logprobs"); ok && !bytes.Equal(raw, []byte("false")) {
			c.logprobs, c.top = true, int(f.integer("logprobs", 0, 0, maxLikely))
		}
	}
	switch {
	case c.bestOf < c.n:
		f.fail(invalid("best_of", "best_of %d must not be below n %d", c.bestOf, c.n))
	case stream && c.bestOf > c.n:
		f.fail(invalid("best_of", "best_of above n cannot be streamed: which choices are the best is known at the end"))
	case stream && c.promptTop >= 0:
		f.fail(invalid("prompt_logprobs", "prompt_logprobs cannot be streamed"))
	}
	return c
}

func (c *choices) readChatLogprobs(f *fields) {
	c.logprobs = f.boolean("logprobs", false)
	c.top = int(f.integer("top_logprobs", 0, 0, maxLikely))
	if _, given := f.get("top_logprobs"); given && !c.logprobs && c.top > 0 {
		f.fail(invalid("top_logprobs", "top_logprobs is only for requests with \"logprobs\": true"))
	}
}

// scoring is what the worker is asked about generated tokens; nil for nothing.
func (c *choices) scoring() *workerv1.Scoring {
	if !c.logprobs && c.bestOf == c.n {
		return nil
	}
	return &workerv1.Scoring{Top: uint32(c.top)}
}

// promptScoring is what the worker is asked about the prompt's tokens.
func (c *choices) promptScoring() *workerv1.Scoring {
	if c.promptTop < 0 && !c.echoesScores() {
		return nil
	}
	top := max(c.promptTop, 0)
	if c.echoesScores() {
		top = max(top, c.top)
	}
	return &workerv1.Scoring{Top: uint32(top)}
}

func (c *choices) echoesScores() bool { return c.echo && c.logprobs }

// onlyPrompt says that a request may want nothing but its prompt.
func (c *choices) onlyPrompt(chat bool) bool { return !chat && (c.echo || c.promptTop >= 0) }
