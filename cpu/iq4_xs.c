//go:build cgo && amd64

#define FINE
#include "q8_0.c"
