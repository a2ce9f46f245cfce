//go:build cgo && amd64

#define VNNI
#include "q4_0.c"
