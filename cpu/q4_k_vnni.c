//go:build cgo && amd64

#define VNNI
#include "q4_k.c"
