//go:build cgo && amd64

#define VNNI
#include "iq4_nl.c"
