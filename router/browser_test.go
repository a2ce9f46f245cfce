package router

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const hello = `{"model":"tiny","prompt":"hi","max_tokens":1}`

// A page of another origin can send nothing that does anything, to clients' port or to operators'.
func TestForeignPagesAreRefused(t *testing.T) {
	h := open(t, func(c *Config) { c.Origins = []string{"https://app.example"} })
	h.hire("w1", nil)
	if r := h.post("/v1/completions", hello); r.status != 200 {
		t.Fatalf("a client that is no browser: %d %s", r.status, r.body)
	}
	for _, c := range []struct {
		name   string
		header []string
		status int
		id     string
	}{
		{"foreign origin", []string{"Origin", "https://evil.example"}, 403, "REQ-004"},
		{"no origin", []string{"Origin", "null"}, 403, "REQ-004"},
		{"cross-site", []string{"Sec-Fetch-Site", "cross-site"}, 403, "REQ-004"},
		{"another port", []string{"Origin", "http://localhost:1", "Sec-Fetch-Site", "same-site"}, 403, "REQ-004"},
		{"a name that points here", []string{"Host", "evil.example"}, 403, "REQ-004"},
		{"plain text", []string{"Content-Type", "text/plain"}, 415, "REQ-005"},
		{"a form", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "REQ-005"},
		{"no type", []string{"Content-Type", ""}, 415, "REQ-005"},
		{"another charset", []string{"Content-Type", "application/json; charset=utf-16"}, 415, "REQ-005"},
		{"gzip", []string{"Content-Encoding", "gzip"}, 415, "REQ-005"},
		{"an allowed origin", []string{"Origin", "https://app.example", "Sec-Fetch-Site", "cross-site"}, 200, ""},
		{"this origin", []string{"Origin", "http://HOST", "Sec-Fetch-Site", "same-origin"}, 200, ""},
		{"utf-8", []string{"Content-Type", "application/json; charset=UTF-8"}, 200, ""},
		{"localhost", []string{"Host", "localhost:8080"}, 200, ""},
		{"IPv6", []string{"Host", "[::1]:8080"}, 200, ""},
	} {
		r := h.as(h.http, "POST", "/v1/completions", hello, c.header...)
		if r.status != c.status {
			t.Errorf("%s: %d %s, want %d", c.name, r.status, r.body, c.status)
		} else if c.id != "" {
			if id, _ := r.fault(t); id != c.id {
				t.Errorf("%s: %s, want %s", c.name, id, c.id)
			}
		}
		if c.status == 200 {
			continue
		}
		for _, change := range [][2]string{{"PUT", "/admin/v1/tenants/x"}, {"POST", "/admin/v1/members/x"}} {
			if r := h.as(h.admin, change[0], change[1], "{}", c.header...); r.status != c.status {
				t.Errorf("%s: %s %s: %d %s", c.name, change[0], change[1], r.status, r.body)
			}
		}
	}
	if len(h.router.cfg.Ledger.View().Tenants) != 0 {
		t.Error("a page has put a tenant")
	}
}

// as sends a request with headers; HOST stands for the server's address.
func (h *house) as(s *httptest.Server, method, path, body string, header ...string) response {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		value := strings.ReplaceAll(header[i+1], "HOST", req.URL.Host)
		switch {
		case header[i] == "Host":
			req.Host = value
		case value == "":
			req.Header.Del(header[i])
		default:
			req.Header.Set(header[i], value)
		}
	}
	res, err := s.Client().Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return response{status: res.StatusCode, body: string(raw), header: res.Header}
}

// A browser asks first, without a key, and may read what pages need.
func TestPreflight(t *testing.T) {
	h := open(t, func(c *Config) { c.Origins = []string{"https://app.example"} })
	h.hire("w1", nil)
	h.manage("PUT", "/admin/v1/tenants/t", `{"new_key":true}`)
	ask := []string{"Origin", "https://app.example", "Access-Control-Request-Method", "POST",
		"Access-Control-Request-Headers", "authorization,content-type,x-stainless-os"}
	r := h.as(h.http, "OPTIONS", "/v1/chat/completions", "", ask...)
	if r.status != 204 || r.header.Get("Access-Control-Allow-Origin") != "https://app.example" ||
		!strings.Contains(r.header.Get("Access-Control-Allow-Headers"), "authorization") {
		t.Errorf("%d %v", r.status, r.header)
	}
	r = h.as(h.http, "POST", "/v1/completions", hello, "Origin", "https://app.example")
	if r.status != 401 || !strings.Contains(r.header.Get("Access-Control-Expose-Headers"), "Retry-After") {
		t.Errorf("the request after it: %d %v", r.status, r.header)
	}
	ask[1] = "https://evil.example"
	if r := h.as(h.http, "OPTIONS", "/v1/chat/completions", "", ask...); r.status < 400 || r.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another origin: %d %v", r.status, r.header)
	}
}

// What changes something needs the token; what looks does only beyond loopback.
func TestAdminToken(t *testing.T) {
	for _, reads := range []bool{false, true} {
		h := open(t, func(c *Config) {
			c.AdminToken, c.AdminTokenFile, c.AdminReads = "berth-admin-x", "data/admin-token", reads
		})
		want := map[bool]int{false: 200, true: 401}[reads]
		if r := h.as(h.admin, "GET", "/admin/v1/cluster", ""); r.status != want {
			t.Errorf("a look, reads guarded %v: %d", reads, r.status)
		}
		for token, want := range map[string]int{"": 401, "Bearer wrong": 401, "Bearer berth-admin-x": 200} {
			r := h.as(h.admin, "PUT", "/admin/v1/tenants/t", `{"new_key":true}`, "Authorization", token)
			if r.status != want || want == 401 && !strings.Contains(r.body, "data/admin-token") {
				t.Errorf("token %q: %d %s", token, r.status, r.body)
			}
		}
	}
}

// Probes of other servers' names find what they look for, without a key.
func TestHealthByOtherNames(t *testing.T) {
	h := open(t, func(c *Config) { c.Version = "1.2.3" })
	h.hire("w1", nil)
	h.manage("PUT", "/admin/v1/tenants/t", `{"new_key":true}`)
	for _, path := range []string{"/health", "/healthz", "/ping", "/version"} {
		if r := h.as(h.http, "GET", path, ""); r.status != 200 || path == "/version" && !strings.Contains(r.body, `"1.2.3"`) {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if r := h.as(h.http, "GET", "/v1/models/", ""); r.status != 401 {
		t.Errorf("/v1/models/ without a key: %d", r.status)
	}
}

// An answer that breaks down after its headers is cut off: it must not look whole.
func TestPanicAfterTheHeaders(t *testing.T) {
	h := open(t, nil)
	late := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(200)
		_, _ = io.WriteString(w, `{"half":`)
		panic("late")
	})
	s := httptest.NewServer(h.router.guarded(late))
	defer s.Close()
	res, err := s.Client().Get(s.URL)
	if err != nil {
		return // cut off before the headers were sent
	}
	defer res.Body.Close()
	if raw, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("%d %q looks whole", res.StatusCode, raw)
	}
	early := httptest.NewServer(h.router.guarded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("early") })))
	defer early.Close()
	if res, err := early.Client().Get(early.URL); err != nil || res.StatusCode != 500 {
		t.Errorf("a panic before the headers: %v, %v", res, err)
	} else {
		res.Body.Close()
	}
}
