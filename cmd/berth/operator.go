package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthd/berth/cmd/flags"
)

// operator is where commands ask the admin API, and by what right.
type operator struct {
	Admin          string `help:"Base of any router's admin API." default:"http://127.0.0.1:8082"`
	AdminTokenFile string `help:"File with the router's admin token. Default: the one that a router on this machine says it has, if it can be read." type:"existingfile" placeholder:"FILE"`
	JSON           bool   `help:"Print what the admin API says, as it is."`
}

// ask sends a request to the admin API; a nil body is none. The token is sent when the router asks for it.
func (o *operator) ask(ctx context.Context, method, path string, body any) (raw json.RawMessage, err error) {
	at := strings.TrimSuffix(o.Admin, "/") + "/admin/v1/" + path
	var data []byte
	if body != nil {
		if data, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	err = askJSON(ctx, method, at, "", reader(data), &raw)
	var refused *refusal
	if !errors.As(err, &refused) || refused.Status != http.StatusUnauthorized {
		return raw, err
	}
	token, fault := o.token(refused.TokenFile)
	if fault != nil {
		return nil, errors.Join(err, fault)
	}
	if token == "" {
		return nil, err
	}
	return raw, askJSON(ctx, method, at, token, reader(data), &raw)
}

func reader(data []byte) io.Reader {
	if data == nil {
		return nil
	}
	return bytes.NewReader(data)
}

// token reads the admin token. The file that a router names is read only if the router is on this machine and what is in
// the file is an admin token: a server elsewhere learns nothing.
func (o *operator) token(named string) (string, error) {
	file := o.AdminTokenFile
	if file == "" {
		u, err := url.Parse(o.Admin)
		if err != nil {
			return "", &flags.UsageError{Err: err}
		}
		ip := net.ParseIP(u.Hostname())
		if u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) || filepath.Base(named) != "admin-token" {
			return "", errors.New("say --admin-token-file: the router is on another machine")
		}
		file = named
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(raw))
	if o.AdminTokenFile == "" && !strings.HasPrefix(token, flags.AdminTokenPrefix) {
		return "", nil
	}
	return token, nil
}
