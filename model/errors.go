package model

import "fmt"

// WeightsError says that a weights file can't be used (error WGT-001 bad_weights): the file, where in it, and what is
// wrong. Nothing of the file has been trusted when it is returned, so no large allocation and no panic came before it.
type WeightsError struct {
	File   string
	Offset int64 // bytes from the start of the file; −1 where no single place is at fault
	What   string
}

// Error is "WGT-001 bad_weights: FILE: at byte N: WHAT".
func (e *WeightsError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("WGT-001 bad_weights: %s: %s", e.File, e.What)
	}
	return fmt.Sprintf("WGT-001 bad_weights: %s: at byte %d: %s", e.File, e.Offset, e.What)
}
