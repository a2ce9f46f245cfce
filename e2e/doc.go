// Package e2e starts the real programs on loopback and asks them what users ask. Its tests have the build tag e2e and
// need `make build`; those of the real model need `berth pull gemma3-270m`, those of the Python client `make setup`.
package e2e
