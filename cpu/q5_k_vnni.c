//go:build cgo && amd64

#define VNNI
#define HIGH
#include "q4_k.c"
