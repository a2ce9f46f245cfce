//go:build cgo && amd64

#define VNNI
#define FINE
#include "q8_0.c"
