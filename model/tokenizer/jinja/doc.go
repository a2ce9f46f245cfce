// Package jinja renders chat templates: the part of Jinja that they use, with the meaning that jinja2 gives it in the
// immutable sandbox in which models' own templates are tested, and with a price on every step.
//
//	source ─▶ tokens ─▶ tree ─▶ names bound to places ─▶ Template
//	                                                      │ variables, clock, limits
//	JSON ─▶ values that keep the order of their keys ─────┴─▶ text, or one error
//
// Invariants:
//
//   - J1 A render ends: each node evaluated, each pass of a loop, each element looked at and each run of bytes built is
//     paid from a store of fuel, and nothing runs when it is empty.
//   - J2 Memory is bounded: no value, no output and no sum of all that was built grows past its limit, and what would is
//     refused before it is built.
//   - J3 Nesting is bounded: in the source, in calls, in iterators that feed each other and in values that are printed
//     or compared.
//   - J4 A template changes nothing that it was given: what the caller passes can be shared by many renders at once.
//   - J5 Text is code points, whole numbers have any size, and dictionaries keep their order, as in Python.
//
// A Template is compiled once and is then read only. The package has no clock, no lock, no randomness and reads no file:
// templates cannot include each other, and what would need chance is refused when a template is compiled.
package jinja
