// Package model describes language models as data: weights, shapes, and exactly what one forward pass needs. It runs
// nothing; devices (cpu, cuda) carry out what it describes.
//
//	GGUF file, or folder of JSON and safetensors ─▶ OpenFile: checked, mapped ─▶ File: keys, tensors, Revision
//	                                                                               │ Load: architecture ▸ Decoder,
//	                                                                               ▼ tensors found, shapes checked
//	                                      Close ◀─ a device copies the weights ◀─ Model
//
//	Plan: rows of tokens, positions, pages ─▶ device ─▶ Result: chosen ids, log-probabilities, logits
//
// Invariants, quoted by tests:
//
//	M1 a file is not trusted: every length is compared with the bytes left before it is used, and every fault is a
//	   *WeightsError with file, offset and reason. No panic, no allocation beyond the file's size.
//	M2 what a file says and Berth would not do (an unknown type, a tensor without a place, values for each layer) is
//	   refused, never left out.
//	M3 dequantised values are the gguf package's, bit for bit.
//	M4 the revision depends on the tensors alone.
//	M5 every layer has one place in one layer group, and all pages have equal bytes.
//	M6 a folder is the GGUF file of the same weights: the same keys, decoder, tensor names and vocabulary.
//
// It never computes with activations, and never writes to a file.
package model
