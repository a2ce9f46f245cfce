//go:build cgo && amd64

#define VNNI
#define MINIMA
#include "q6_k.c"
