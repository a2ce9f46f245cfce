//go:build cgo && amd64

#define VNNI
#include "mxfp4.c"
