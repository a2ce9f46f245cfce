//go:build cgo && amd64

#define VNNI
#include "q5_1.c"
