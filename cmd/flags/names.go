package flags

import (
	"fmt"
	"net"
	"regexp"
	"strings"
)

// AdminTokenPrefix begins the admin tokens that routers draw, so that nothing else is taken for one.
const AdminTokenPrefix = "berth-admin-"

var saneName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// CheckName refuses names of programs that lists, paths and labels could not have.
func CheckName(flag, name string) error {
	if !saneName.MatchString(name) {
		return fmt.Errorf("%s %q: want letters, digits, dots, dashes and underscores, at most 128 of them", flag, name)
	}
	return nil
}

// CheckAddress refuses what is no host:port, nor, if that is allowed, a gRPC target as dns:///name:port.
func CheckAddress(flag, address string, target bool) error {
	if target {
		if _, name, ok := strings.Cut(address, ":///"); ok {
			address = name
		}
	}
	if _, port, err := net.SplitHostPort(address); err != nil || port == "" {
		return fmt.Errorf("%s %q: want host:port", flag, address)
	}
	return nil
}
