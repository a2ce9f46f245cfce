// Package tokenizer turns text into tokens and back, by a vocabulary that comes with the model, and renders chats into
// the text that the model was trained on.
//
//	text ─▶ special and user-defined tokens cut out, longest first ─▶ runs that no token spans ─▶ merges by score ─▶ ids
//	                                     byte-level vocabularies:  └▶ normal form ▸ words ─▶ merges by rank ─▶ ids
//	ids ─▶ pieces ─▶ bytes ─▶ whole characters ─▶ text
//
// Invariants:
//
//   - T1 Ids are those of llama.cpp for the same vocabulary, for any bytes; byte-level ones those of the model's own
//     tokenizer.json, which brings the text of some families to normal form C first.
//   - T2 Decoding what was encoded gives the text back, but for the vocabulary's own space mark (U+2581), and for the
//     normal form.
//   - T3 A Decoder never splits a character: what it has said so far is a prefix of valid UTF-8, and the same text comes
//     whatever the ids were grouped in.
//   - T4 The work is bounded by the length of the text, whatever stands in it.
//
// Encoding and decoding allocate little and take no lock. The package has no tables of its own and reads no file.
package tokenizer
