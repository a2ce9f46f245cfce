//go:build cgo && amd64

#define HIGH
#include "q4_k.c"
