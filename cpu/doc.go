// Package cpu is the device that every machine has: forward passes on its processors, in C kernels where there is cgo
// and AVX2 (and AVX-512 VNNI for integer products, where there is that), else in plain Go.
//
//	Open ─▶ a rank for each shard of the model: weights repacked, buffers mapped
//	Submit(plan) ─▶ check ─▶ queue ─▶ device goroutine, and one for each further rank: embed ▸ layers ▸ head ─▶ Wait ─▶ result
//	                                     │ each op: 8 or more chunks, claimed by the rank's goroutine and its helpers
//	                                     │ twice a layer the ranks meet, and add up what each has computed
//	Close ─▶ last step done ─▶ ranks and helpers ended ─▶ memory unmapped
//
// Invariants, quoted by tests:
//
//	N1 the same bits: a token's logits depend on its sequence, the weights and the numerics name alone; not on batch,
//	   chunking, block size, page ids, threads, or the order in which chunks are claimed.
//	N2 one accumulator: each element of a matrix product is one f32 accumulator over ascending columns, at any tile
//	   shape; blocks of quantised weights are summed exactly in integers, then added by a fixed list of multiply-adds.
//	N3 fixed trees: reductions along a vector use a fixed number of accumulators and one tree; there are no scalar
//	   tails.
//	N4 attention reads pages: keys and values are rounded to the page's type first, those of the current chunk too.
//	   Tiles of 64 positions are aligned to absolute positions; each gives one partial, merged in ascending order.
//	N5 a position that a query may not see is not loaded, and counts as a score of −∞.
//	N6 with kernels, every buffer is mapped at Open; a step of steady decoding allocates nothing.
//	N7 nothing of a plan runs before all of it was checked, and every rank has found it to be the one that was.
//	N8 sums over ranks are formed in rank order, by each rank alike; page ids and page bytes are the same on all.
//
// It never decides what to run, never moves or frees a page, and never keeps a plan after its result.
package cpu
