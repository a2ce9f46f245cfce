// Package model describes language models as data: weights, shapes, and exactly what one forward pass needs. It runs
// nothing; devices (cpu, cuda) carry out what it describes.
package model
