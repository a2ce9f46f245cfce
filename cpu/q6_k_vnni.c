//go:build cgo && amd64

#define VNNI
#include "q6_k.c"
