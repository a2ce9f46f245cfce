package router

import (
	"slices"
	"unicode/utf8"

	"github.com/berthd/berth/model/tokenizer"
)

// detok turns a branch's ids into the text that its client gets, and finds where a stop string ends it.
//
//	ids ─▶ decoder ─▶ pending ─▶ text
//	                    └─ the longest end that may yet become a stop string is held back
type detok struct {
	decoder *tokenizer.Decoder
	stops   *stopMatcher
	state   int32 // of stops
	include bool  // the text ends after the stop string
	after   int   // tokens before which no stop string counts
	stopIDs []int32

	tokens  int
	pending string
	decoded int    // bytes of text that the ids have made
	runes   int    // characters of it
	begins  int    // of these, before the one in which the last id begins
	given   int    // bytes of it that were given out
	matched string // the stop string found, "" if none
	stopID  int32  // the id that ended it, −1 if none
}

func newDetok(q *request) *detok {
	return &detok{
		decoder: q.card.tok.NewDecoder(q.keepSpecial), stops: q.stopStrings(), include: q.includeStop, after: q.minTokens,
		stopIDs: q.stopIDsOf(), stopID: -1,
	}
}

// add takes the next id and returns the text that is certain now. Over says that nothing more may follow.
func (d *detok) add(id int32) (text string, over bool) {
	d.tokens++
	d.begins = d.runes
	stopped := d.tokens > d.after && slices.Contains(d.stopIDs, id)
	if stopped {
		d.stopID = id
	}
	if stopped && !d.include {
		return "", true // the stop id's own text is not part of the answer
	}
	text = d.decoder.Add(id)
	d.begins = d.decoder.Begins()
	return d.take(text, stopped)
}

// take appends decoded text and looks for a stop string that ends in it: the earliest, of those the longest.
func (d *detok) take(text string, stopped bool) (string, bool) {
	from := len(d.pending)
	d.pending += text
	d.decoded, d.runes = d.decoded+len(text), d.runes+utf8.RuneCountInString(text)
	state, at, stop := d.stops.find(d.state, text)
	if d.state = state; stop != "" && d.tokens > d.after {
		d.matched = stop
		at += from
		if d.include {
			at += len(stop)
		}
		out := d.pending[:at]
		d.pending = ""
		d.given += at
		return out, true
	}
	certain := len(d.pending) - d.stops.held(d.state)
	out := d.pending[:certain]
	d.pending = d.pending[certain:]
	d.given += certain
	return out, stopped
}

// end returns the text that was held back when no more ids come.
func (d *detok) end() string {
	if d.matched != "" {
		return ""
	}
	text, _ := d.take(d.decoder.Flush(), true)
	if d.matched == "" {
		text += d.pending
		d.given += len(d.pending)
		d.pending = ""
	}
	return text
}
