package main

import (
	"math/rand/v2"
	"strings"
)

// words are common enough to be one token, with their space, in most vocabularies.
var words = strings.Fields(`the of and to in is that for was on are with they be at one have this from had by hot word but what
some we can out other were all there when up use your how said each she which their time will way about many then them write
would like so these her long make thing see him two has look more day could go come did number sound no most people my over
know water than call first who may down side been now find any new work part take get place made live where after back
little only round man year came show every good me give our under name very through just form sentence great think say help
low line differ turn cause much mean before move right boy old too same tell does set three want air well also play small
end put home read hand port large spell add even land here must big high such follow act why ask men change went light kind
off need house picture try us again animal point mother world near build self earth father`)

func prose(rng *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteString(" " + words[rng.IntN(len(words))])
	}
	return b.String()
}

// conversations are what a run asks: turns of one, or of many for multiturn. As many turns as requests, in all.
func (c *benchCommand) conversations() [][]string {
	rng := rand.New(rand.NewPCG(c.Seed, 1))
	shared := prose(rng, c.SharedWords)
	if c.Workload == "unique" {
		shared = ""
	}
	turns := 1
	if c.Workload == "multiturn" {
		turns = c.Turns
	}
	var talks [][]string
	for left := c.Requests; left > 0; left -= turns {
		var talk []string
		for i := range min(turns, left) {
			text := prose(rng, c.PromptWords)
			if i == 0 {
				text = shared + text
			}
			talk = append(talk, text)
		}
		talks = append(talks, talk)
	}
	return talks
}
