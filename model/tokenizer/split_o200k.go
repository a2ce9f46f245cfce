package tokenizer

// o200kWord cuts by the pattern of OpenAI's o200k vocabularies, in which words change where small letters are followed
// by large ones, and endings stay with their word:
//
//	[^\r\n\p{L}\p{N}]?H*T+E?|[^\r\n\p{L}\p{N}]?H+T*E?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+
//
// where H is [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}], T is [\p{Ll}\p{Lm}\p{Lo}\p{M}] and E is (?i:'s|'t|'re|'ve|'m|'ll|'d).
func o200kWord(c *classes, s string) int { return caseWord(c, s, true, 3) }

// tekkenWord is o200kWord without E, and with numbers cut into single digits: Mistral's.
func tekkenWord(c *classes, s string) int { return caseWord(c, s, false, 1) }

func caseWord(c *classes, s string, endings bool, digits int) int {
	first, n := c.at(s, 0)
	from := [2]int{n, 0} // with and without a character before the word
	if first&(newline|letter|number) != 0 {
		from[0] = 0
	}
	for _, core := range []func(*classes, string, int) int{headsThenTails, headsAlone} {
		for _, lo := range from {
			if end := core(c, s, lo); end > lo {
				if endings {
					end += contraction(s[end:], true)
				}
				return end
			}
		}
	}
	if first&number != 0 {
		return c.number(s, digits)
	}
	if end := c.symbols(s, letter|number|space); end > 0 {
		for end < len(s) && (s[end] == '\r' || s[end] == '\n' || s[end] == '/') {
			end++
		}
		return end
	}
	return c.spaces(s, true)
}

// headsThenTails is the end of H*T+ from s[lo:] on, lo if there is none. H* takes what it can and gives back, from its
// end, until a character of T stands next.
func headsThenTails(c *classes, s string, lo int) int {
	end, back := lo, lo // back: after the last character of both H and T
	for {
		k, n := c.at(s, end)
		if k&heads == 0 {
			break
		}
		end += n
		if k&tails != 0 {
			back = end
		}
	}
	if after := c.run(s, end, tails, 0); after > end {
		return after
	}
	return back
}

// headsAlone is the end of H+T* where T+ has nothing to take: H+.
func headsAlone(c *classes, s string, lo int) int { return c.run(s, lo, heads, 0) }
