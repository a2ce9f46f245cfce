package router

import (
	"crypto/subtle"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Browsers are on loopback too: any page that they show may send requests there. What follows keeps pages apart from
// clients: another origin's requests are refused unless the origin is allowed, a body must say that it is JSON, which no
// page can send elsewhere without being asked first, and names that a page's owner could point at this machine are no
// names of it.

// anyOrigin allows pages of every origin.
const anyOrigin = "*"

// crossOrigin is the check of origins, by Origin and Sec-Fetch-Site.
func crossOrigin(allowed []string) (*http.CrossOriginProtection, error) {
	c := http.NewCrossOriginProtection()
	for _, origin := range allowed {
		if origin == anyOrigin {
			continue
		}
		if err := c.AddTrustedOrigin(origin); err != nil {
			return nil, fmt.Errorf("origin %q: want scheme://host[:port]: %w", origin, err)
		}
	}
	return c, nil
}

// CheckOrigins says what is wrong with a list of allowed origins.
func CheckOrigins(allowed []string) error {
	_, err := crossOrigin(allowed)
	return err
}

// fromPages refuses what a page of another origin sends, and lets those of allowed ones read the answers (CORS).
func (r *Router) fromPages(asksKey func() bool, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		origin := req.Header.Get("Origin")
		allowed := slices.Contains(r.cfg.Origins, anyOrigin) || slices.Contains(r.cfg.Origins, origin)
		if origin != "" && allowed {
			h := w.Header()
			h.Set("Access-Control-Allow-Origin", origin)
			h.Add("Vary", "Origin")
			h.Set("Access-Control-Expose-Headers", "X-Request-Id, Retry-After")
			if req.Method == http.MethodOptions && req.Header.Get("Access-Control-Request-Method") != "" {
				preflight(w, req)
				return
			}
		}
		if !asksKey() && !r.ownHost(req) {
			r.refuse(w, req, &Error{kind: kindOrigin, Message: fmt.Sprintf("requests for the host %.100q are not served while no "+
				"key is asked for: use localhost or an address, or name the host in --allowed-hosts", req.Host)})
			return
		}
		if err := r.origins.Check(req); err != nil && !allowed {
			r.refuse(w, req, &Error{kind: kindOrigin, Message: fmt.Sprintf("pages of %.100q may not use this server: "+
				"--cors-origins names those that may", origin)})
			return
		}
		next.ServeHTTP(w, req)
	})
}

// preflight tells a browser that a page of an allowed origin may send what it wants to.
func preflight(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Add("Vary", "Access-Control-Request-Headers")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE")
	if asked := req.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
	}
	if req.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// ownHost says whether a request that came over loopback names this machine: a name of the Internet that was pointed at
// 127.0.0.1 for a while is not one.
func (r *Router) ownHost(req *http.Request) bool {
	local, _ := req.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil {
		return true
	}
	at, err := netip.ParseAddrPort(local.String())
	if err != nil || !at.Addr().IsLoopback() || req.Host == "" {
		return true
	}
	host := req.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || slices.Contains(r.cfg.Hosts, host)
}

// isJSON refuses a body that does not say that it is JSON in UTF-8: a page may send any other without being asked.
func isJSON(req *http.Request) error {
	kind, params, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	json := kind == "application/json" || strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json")
	charset := strings.ToLower(params["charset"])
	switch {
	case err != nil || !json:
		return &Error{kind: kindMediaType, Message: "the body must be JSON: send Content-Type: application/json"}
	case charset != "" && charset != "utf-8" && charset != "utf8":
		return &Error{kind: kindMediaType, Message: fmt.Sprintf("the body must be in UTF-8, not in %.40q", charset)}
	case !slices.Contains([]string{"", "identity"}, strings.ToLower(req.Header.Get("Content-Encoding"))):
		return &Error{kind: kindMediaType, Message: fmt.Sprintf("bodies are not read in the encoding %.40q: send it without "+
			"Content-Encoding", req.Header.Get("Content-Encoding"))}
	}
	return nil
}

// operated lets in who has the admin token: to change something always, to look where the token guards reads too.
func (r *Router) operated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		_, given, _ := strings.Cut(req.Header.Get("Authorization"), " ")
		reads := req.Method == http.MethodGet || req.Method == http.MethodHead
		if r.cfg.AdminToken == "" || reads && !r.cfg.AdminReads ||
			subtle.ConstantTimeCompare([]byte(strings.TrimSpace(given)), []byte(r.cfg.AdminToken)) == 1 {
			next.ServeHTTP(w, req)
			return
		}
		r.refuse(w, req, &Error{kind: kindAdmin, Numbers: map[string]any{"token_file": r.cfg.AdminTokenFile},
			Message: fmt.Sprintf("the admin token is needed, as in Authorization: Bearer TOKEN; this router has it in %s",
				r.cfg.AdminTokenFile)})
	})
}
