//go:build cgo && amd64

#define VNNI
#include "scan.c"
