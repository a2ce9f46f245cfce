package main

import (
	"bufio"
	"errors"
	"os"
	"strconv"
	"strings"
)

// memoryLimit is how much memory the process may use, in bytes: the least of what the machine has available and what
// its control group allows.
func memoryLimit() (uint64, error) {
	limit, err := available()
	if raw, e := os.ReadFile("/sys/fs/cgroup/memory.max"); e == nil {
		if v, e := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64); e == nil && (err != nil || v < limit) {
			return v, nil
		}
	}
	return limit, err
}

func available() (uint64, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("the machine does not say how much memory is available")
}
