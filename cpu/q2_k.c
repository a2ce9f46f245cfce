//go:build cgo && amd64

#define MINIMA
#include "q6_k.c"
