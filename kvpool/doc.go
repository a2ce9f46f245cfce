// Package kvpool says what a page of KV memory is, who holds it, and which goes next.
package kvpool
