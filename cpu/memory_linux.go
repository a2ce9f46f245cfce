package cpu

import "golang.org/x/sys/unix"

// adviseHuge asks for 2 MiB pages, which halves the cost of walking weights; it is a wish, so its failure is no fault.
func adviseHuge(b []byte) {
	if len(b) >= hugePage {
		_ = unix.Madvise(b, unix.MADV_HUGEPAGE)
	}
}

// adviseForget drops what b holds; a failure leaves the memory in use until b is unmapped.
func adviseForget(b []byte) { _ = unix.Madvise(b, unix.MADV_DONTNEED) }
