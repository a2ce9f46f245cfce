package main

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthd/berth/cmd/flags"
)

// adminToken is what changes through the admin API need.
type adminToken struct {
	token, file string
	reads       bool // it is needed to look, too
}

// shortestToken is of those that operators choose: they must not be found by trying.
const shortestToken = 16

// readAdminToken reads the token from the file that was named, else from the one in the data folder, drawn if it is not
// there.
func readAdminToken(c *config) (*adminToken, error) {
	host, _, err := net.SplitHostPort(c.Admin)
	if err != nil {
		return nil, fmt.Errorf("--admin %s: want host:port: %w", c.Admin, err)
	}
	t := &adminToken{file: c.AdminToken, reads: c.AdminToken != "" || !loopback(host)}
	if t.file == "" {
		if t.file, err = filepath.Abs(filepath.Join(c.Data, "admin-token")); err != nil {
			return nil, err
		}
	}
	raw, err := os.ReadFile(t.file)
	if errors.Is(err, fs.ErrNotExist) && c.AdminToken == "" {
		raw, err = drawToken(t.file)
	}
	if err != nil {
		return nil, fmt.Errorf("the admin token: %w", err)
	}
	if t.token = strings.TrimSpace(string(raw)); len(t.token) < shortestToken {
		return nil, fmt.Errorf("the admin token in %s has %d characters: it needs at least %d", t.file, len(t.token), shortestToken)
	}
	return t, nil
}

// drawToken makes a token that only this user can read.
func drawToken(file string) ([]byte, error) {
	var b [32]byte
	rand.Read(b[:])
	token := []byte(flags.AdminTokenPrefix + base64.RawURLEncoding.EncodeToString(b[:]) + "\n")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return nil, err
	}
	return token, os.WriteFile(file, token, 0o600)
}
