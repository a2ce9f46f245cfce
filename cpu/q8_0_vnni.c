//go:build cgo && amd64

#define VNNI
#include "q8_0.c"
