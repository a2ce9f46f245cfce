package ledger

import (
	"cmp"
	"fmt"
	"unicode/utf8"

	ledgerv1 "github.com/berthd/berth/api/ledger/v1"
)

// Bounds of what clients say of themselves: every replica keeps it, in every snapshot.
const (
	maxName    = 253       // bytes, as of a host
	maxAddress = 253 + 8   // a host, a colon, a port and a little more
	maxModels  = 64        // names
	maxModel   = 256       // bytes of one
	maxText    = 256       // bytes of a description
	maxSum     = 64        // bytes of a checksum
	minLease   = 100       // ms
	maxLease   = 3_600_000 // ms
	maxTick    = maxLease  // ms that one tick lets pass, whoever made it
)

// checkClient bounds who opens a session; what is the field of the name.
func checkClient(what, name string, nonce []byte, leaseMs uint64) error {
	switch {
	case name == "":
		return fmt.Errorf("%s: want a name", what)
	case len(nonce) == 0 || len(nonce) > maxNonce:
		return fmt.Errorf("nonce: %d bytes, want 1 to %d", len(nonce), maxNonce)
	case leaseMs < minLease || leaseMs > maxLease:
		return fmt.Errorf("lease: %d ms, want %d to %d", leaseMs, minLease, maxLease)
	}
	return checkText(what, name, maxName)
}

// checkInfo bounds what a worker says of itself, but for its numbers.
func checkInfo(i *ledgerv1.WorkerInfo) error {
	if len(i.GetModels()) > maxModels {
		return fmt.Errorf("models: %d names, want at most %d", len(i.GetModels()), maxModels)
	}
	for _, name := range i.GetModels() {
		if err := checkText("models", name, maxModel); err != nil {
			return err
		}
	}
	return cmp.Or(
		checkText("address", i.GetAddress(), maxAddress), checkText("numerics", i.GetNumerics(), maxText),
		checkText("layout", i.GetLayout(), maxText), checkText("device", i.GetDevice(), maxText),
		checkSum("model revision", i.GetModelRevision()), checkSum("card", i.GetCard()),
	)
}

func checkSum(what string, sum []byte) error {
	if len(sum) > maxSum {
		return fmt.Errorf("%s: %d bytes, want at most %d", what, len(sum), maxSum)
	}
	return nil
}

// checkText wants UTF-8 without control characters. It asks no table of characters: those grow from version to version,
// and replicas of different ones must agree.
func checkText(what, text string, most int) error {
	if len(text) > most {
		return fmt.Errorf("%s: %d bytes, want at most %d", what, len(text), most)
	}
	if !utf8.ValidString(text) {
		return fmt.Errorf("%s: not UTF-8", what)
	}
	for _, c := range text {
		if c < ' ' || c >= 0x7F && c < 0xA0 || c == '\u2028' || c == '\u2029' {
			return fmt.Errorf("%s: %U is not printable", what, c)
		}
	}
	return nil
}
