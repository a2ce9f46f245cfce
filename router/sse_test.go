package router

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
	"time"
)

// While nothing comes of a stream that has begun, comments do: proxies cut silent connections.
func TestSilentStreamsAreKeptAlive(t *testing.T) {
	h := open(t, func(c *Config) { c.KeepAlive = 20 * time.Millisecond })
	release := make(chan struct{})
	h.hire("w1", nil).play = held(release)
	req, err := http.NewRequestWithContext(t.Context(), "POST", h.http.URL+"/v1/chat/completions",
		strings.NewReader(`{"model":"tiny","messages":[{"role":"user","content":"hi"}],"max_tokens":2,"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := h.http.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	comments, events := 0, 0
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, ": "):
			if comments++; comments == 3 {
				close(release)
			}
		case strings.HasPrefix(line, "data: "):
			events++
			if strings.Contains(line, "chunk") && !strings.Contains(line, `"system_fingerprint":"fp_`) {
				t.Errorf("%s has no fingerprint", line)
			}
		case line != "":
			t.Errorf("%q is neither an event nor a comment", line)
		}
	}
	if comments < 3 || events < 3 {
		t.Errorf("%d comments, %d events", comments, events)
	}
}

// Tenants with a budget are told what is left of it.
func TestBudgetInHeaders(t *testing.T) {
	h := open(t, nil)
	h.hire("w1", nil)
	h.manage("PUT", "/admin/v1/tenants/t", `{"keys":["a-key-of-sixteen!"],"tokens_per_minute":600}`)
	r := h.do("POST", "/v1/completions", hello, "Authorization", "Bearer a-key-of-sixteen!")
	if r.status != 200 || r.header.Get("X-Ratelimit-Limit-Tokens") != "600" || r.header.Get("X-Ratelimit-Remaining-Tokens") == "" ||
		r.header.Get("X-Ratelimit-Reset-Tokens") == "" {
		t.Errorf("%d %v", r.status, r.header)
	}
}
