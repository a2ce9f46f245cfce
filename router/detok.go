package router

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/berthd/berth/model/tokenizer"
)

// detok turns a branch's ids into the text that its client gets, and finds where a stop string ends it.
//
//	ids ─▶ decoder ─▶ pending ─▶ text
//	                    └─ the longest end that may yet become a stop string is held back
type detok struct {
	decoder *tokenizer.Decoder
	stops   []string
	include bool // the text ends after the stop string
	after   int  // tokens before which no stop string counts
	stopIDs []int32

	tokens  int
	pending string
	decoded int    // bytes of text that the ids have made
	runes   int    // characters of it
	given   int    // bytes of it that were given out
	matched string // the stop string found, "" if none
	stopID  int32  // the id that ended it, −1 if none
}

func newDetok(q *request) *detok {
	return &detok{
		decoder: q.card.tok.NewDecoder(q.keepSpecial), stops: q.stops, include: q.includeStop, after: q.minTokens,
		stopIDs: q.stopIDsOf(), stopID: -1,
	}
}

// add takes the next id and returns the text that is certain now. Over says that nothing more may follow.
func (d *detok) add(id int32) (text string, over bool) {
	d.tokens++
	stopped := d.tokens > d.after && slices.Contains(d.stopIDs, id)
	if stopped {
		d.stopID = id
	}
	if stopped && !d.include {
		return "", true // the stop id's own text is not part of the answer
	}
	return d.take(d.decoder.Add(id), stopped)
}

// take appends decoded text and looks for a stop string that ends in it: the earliest, of those the longest.
func (d *detok) take(text string, stopped bool) (string, bool) {
	from := len(d.pending)
	d.pending += text
	d.decoded, d.runes = d.decoded+len(text), d.runes+utf8.RuneCountInString(text)
	if d.tokens > d.after {
		if at, stop := firstStop(d.pending, d.stops, from); stop != "" {
			d.matched = stop
			if d.include {
				at += len(stop)
			}
			out := d.pending[:at]
			d.pending = ""
			d.given += at
			return out, true
		}
	}
	certain := len(d.pending) - heldBack(d.pending, d.stops)
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

// firstStop is where in s the first stop string begins that ends after byte from; "" if there is none.
func firstStop(s string, stops []string, from int) (at int, found string) {
	for _, stop := range stops {
		lo := max(0, from+1-len(stop))
		if lo > len(s) {
			continue
		}
		i := strings.Index(s[lo:], stop)
		if i < 0 {
			continue
		}
		if i += lo; found == "" || i < at || i == at && len(stop) > len(found) {
			at, found = i, stop
		}
	}
	return at, found
}

// heldBack is the length of the longest end of s that some stop string begins with, and is not all of.
func heldBack(s string, stops []string) int {
	held := 0
	for _, stop := range stops {
		for n := min(len(stop)-1, len(s)); n > held; n-- {
			if strings.HasSuffix(s, stop[:n]) {
				held = n
				break
			}
		}
	}
	return held
}
