package event

import (
	"errors"
	"net/url"
	"strings"
)

// errURL stands for every parse error: url.Parse repeats its argument, which may
// hold a password, in the error's text [SEC-2].
var errURL = errors.New("is not a URI-reference")

// parseURL is url.Parse, into a zero URL and without allocation when s is plain.
func parseURL(s string, u *url.URL) error {
	if splitPlain(s, u); plain(u) {
		return nil
	}
	parsed, err := url.Parse(s)
	if err != nil {
		return errURL
	}
	*u = *parsed
	return nil
}

// plain reports whether u is one of the forms
//
//	scheme://host/path   //host/path   scheme:opaque   /path   path
//
// in characters that no part of a URL escapes. Then rendering u is putting its
// fields together, and parsing the result gives the same fields again. Nearly every
// source in use is plain; it is worth an own path, since url.Parse and String
// allocate and are most of the time that encoding a small event takes.
func plain(u *url.URL) bool {
	if u.User != nil || u.RawPath != "" || u.OmitHost || u.ForceQuery ||
		u.RawQuery != "" || u.Fragment != "" || u.RawFragment != "" {
		return false
	}
	if u.Scheme != "" && !plainScheme(u.Scheme) {
		return false
	}
	switch {
	case u.Opaque != "":
		return u.Scheme != "" && u.Host == "" && u.Path == "" && u.Opaque[0] != '/' && only(u.Opaque, unreserved|slash|colon)
	case u.Host != "":
		host, port, hasPort := strings.Cut(u.Host, ":")
		return host != "" && only(host, unreserved) && (!hasPort || digits(port)) &&
			(u.Path == "" || u.Path[0] == '/') && only(u.Path, unreserved|slash)
	default:
		return u.Scheme == "" && u.Path != "" && !strings.HasPrefix(u.Path, "//") && only(u.Path, unreserved|slash)
	}
}

// splitPlain takes s apart. If the result is plain, url.Parse would return it too.
func splitPlain(s string, u *url.URL) {
	rest := s
	if i := strings.IndexByte(s, ':'); i > 0 && plainScheme(s[:i]) {
		u.Scheme, rest = s[:i], s[i+1:]
		if !strings.HasPrefix(rest, "/") {
			u.Opaque = rest
			return
		}
	}
	if !strings.HasPrefix(rest, "//") {
		u.Path = rest
		return
	}
	host, path := rest[2:], ""
	if i := strings.IndexByte(host, '/'); i >= 0 {
		host, path = host[:i], host[i:]
	}
	if host != "" { // "///a" is a path of its own kind
		u.Host, u.Path = host, path
	}
}

// appendPlain appends what u.String would return. u must be plain.
func appendPlain(dst []byte, u *url.URL) []byte {
	if u.Scheme != "" {
		dst = append(dst, u.Scheme...)
		dst = append(dst, ':')
	}
	if u.Host != "" {
		dst = append(dst, "//"...)
		dst = append(dst, u.Host...)
	}
	dst = append(dst, u.Opaque...)
	return append(dst, u.Path...)
}

func plainLen(u *url.URL) int {
	n := len(u.Host) + len(u.Opaque) + len(u.Path)
	if u.Scheme != "" {
		n += len(u.Scheme) + len(":")
	}
	if u.Host != "" {
		n += len("//")
	}
	return n
}

func plainScheme(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z':
		case i > 0 && ('0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'):
		default:
			return false
		}
	}
	return s != ""
}

// uriText reports whether s has only characters that a URI may have, as they are
// or as part of an escape.
func uriText(s string) bool {
	return only(s, unreserved|slash|colon|plus|reserved)
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
