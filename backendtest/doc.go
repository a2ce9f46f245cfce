// Package backendtest is one suite that holds every device to the same reference results.
//
//	golden data ──▶ prompt ──▶ plans (chunks, batches, pages) ──▶ Device ──▶ logits, tokens ──▶ within tolerance?
//
// What it proves of a device, by the invariants of design sections 1 and 9:
//
//	B1 exact: the f32 path gives transformers' logits within 1e-3 on a small model and 0.02 on the real one, and its
//	   greedy tokens for as long as the reference's own margin is not inside the tolerance.
//	B2 close: the fast path, with quantised activations, keeps perplexity within 1.5 % and every clear argmax.
//	B3 the same bits: logits do not depend on batch size, chunking, block size, page numbers, threads or what else runs
//	   in the step.
//	B4 pages only: a page that a window has passed is not read, and a result does not depend on what pages held before.
//	B5 one answer: a checkpoint folder gives the bits of the GGUF file of its weights on the f32 path.
//
// It never compares two devices with each other: only with the golden data, and a device with itself.
//
// Golden data lies in testdata/golden. The real model is looked for in $BERTH_TEST_MODEL, then in the user's cache
// directory; tests that need it are skipped, and say so, when it is absent. The build tag soak runs the long forms of
// those tests.
package backendtest
