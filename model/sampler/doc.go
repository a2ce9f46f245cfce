// Package sampler chooses a row's next token from its logits, on devices that sample on the host.
//
//	logits → bias → penalties → temperature → min-p → top-k → top-p → softmax → one token
//
// The order is vLLM's (V1 sampler). Invariants:
//
//   - S1 The same logits, parameters, seed and counter give the same token, whatever else is sampled before or beside it.
//   - S2 A token that is banned, masked, or cut by a limit is never chosen; the most likely allowed one never is cut.
//   - S3 Greedy takes the lowest id of the highest logit.
//   - S4 Nothing is allocated per token.
//   - S5 No logits and no parameters make it panic: where nothing can be chosen it says −1.
//
// It never sees text, and never draws from a shared random source.
package sampler
