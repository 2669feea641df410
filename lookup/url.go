package lookup

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// URL is a URL in canonical form ("URLs and Hashing"): a scheme, a host, a path
// and perhaps a query, without user, password, port and fragment. Two URLs that
// Safe Browsing cannot tell apart are equal, but for their schemes and for the
// question mark of an empty query. The zero URL is no URL. A URL is a value and
// safe for concurrent use.
type URL struct {
	scheme string // lower case
	host   Host
	path   string // begins with a slash, escaped
	query  string // with its question mark, escaped; "" if there is none
}

// Host returns the host of the URL.
func (u URL) Host() Host { return u.host }

// String returns the URL in canonical form, or "" for the zero URL. ParseURL of
// it is the same URL.
func (u URL) String() string {
	if u == (URL{}) {
		return ""
	}
	return u.scheme + "://" + u.host.name + u.path + u.query
}

// ignored are the bytes that may stand anywhere in a URL and mean nothing.
var ignored = strings.NewReplacer("\t", "", "\r", "", "\n", "")

// ParseURL returns the canonical form of a URL of any scheme that has a host. A
// text without a scheme is taken for one of http. Any bytes may be given; the
// error says why they are no URL.
//
// Escapes are undone before the URL is taken apart, as the page says: an escaped
// slash divides, an escaped question mark begins the query. Only the user and
// the password go first, so that their escapes cannot hide the host from us that
// a browser would go to.
func ParseURL(text string) (URL, error) {
	text = strings.Trim(ignored.Replace(text), " ")
	text, _, _ = strings.Cut(text, "#")
	scheme, rest, err := cutScheme(string(unescape([]byte(withoutUser(text)))))
	if err != nil {
		return URL{}, err
	}
	authority, rest := cutAuthority(rest)
	if scheme == "" {
		scheme = "http"
		if err := checkBare(authority); err != nil {
			return URL{}, err
		}
	}
	host, err := hostOf(authority)
	if err != nil {
		return URL{}, err
	}
	path, query, found := strings.Cut(rest, "?")
	if found {
		query = "?" + query
	}
	return URL{scheme: scheme, host: host, path: escaped(resolved(path)), query: escaped(query)}, nil
}

// withoutUser removes user and password from a URL that has a scheme, before
// their escapes are undone.
func withoutUser(text string) string {
	scheme, _, found := strings.Cut(text, "://")
	if !found || strings.ContainsAny(scheme, "/?") {
		return text
	}
	start := len(scheme) + len("://")
	authority, _ := cutAuthority(text[start:])
	if strings.Contains(authority, `\`) {
		return text // for hostOf to refuse
	}
	return text[:start] + text[start+strings.LastIndexByte(authority, '@')+1:]
}

// cutScheme splits a URL behind its "://". The scheme is in lower case, or "" if
// there is none.
func cutScheme(text string) (scheme, rest string, err error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found || strings.ContainsAny(scheme, "/?") { // it is part of a path or query
		return "", text, nil
	}
	scheme = strings.ToLower(scheme)
	for i := range len(scheme) {
		c := scheme[i]
		if ('a' > c || c > 'z') && (i == 0 || !isDigit(c) && c != '+' && c != '-' && c != '.') {
			return "", "", errors.New(`no scheme before "://"`) // RFC 2396 section 3.1
		}
	}
	if scheme == "" {
		return "", "", errors.New(`no scheme before "://"`)
	}
	return scheme, rest, nil
}

// cutAuthority splits what follows the scheme before the path or query.
func cutAuthority(text string) (authority, rest string) {
	if end := strings.IndexAny(text, "/?"); end >= 0 {
		return text[:end], text[end:]
	}
	return text, ""
}

// checkBare is for the authority of a text without "://". A colon in it must
// begin a port: "mailto:a@example.com" and "http:/example.com" name a scheme.
func checkBare(authority string) error {
	name, port, found := strings.Cut(authority, ":")
	if !found || strings.HasPrefix(name, "[") || port != "" && isNumber(port) {
		return nil
	}
	return errors.New(`a scheme without "://"`)
}

func isNumber(s string) bool {
	return strings.Trim(s, "0123456789") == ""
}

// hostOf returns the canonical host of an authority, its escapes undone. User
// and password end at the last @, as for a browser. A backslash is refused: to
// some it is a slash, and then the host is another.
func hostOf(authority string) (Host, error) {
	if strings.Contains(authority, `\`) {
		return Host{}, errors.New("a backslash in the host")
	}
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	name := authority
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, ']') {
		if !isNumber(name[colon+1:]) {
			return Host{}, errors.New("a port that is no number")
		}
		name = name[:colon]
	}
	if strings.Trim(name, ".") == "" {
		return Host{}, errors.New("no host")
	}
	// Unlike a name that a person wrote, a host of a URL may hold a space: the
	// published examples have it as %20.
	host, ok := canonicalHost(name, strings.TrimSuffix(notInHost[1:], " "))
	if !ok {
		return Host{}, fmt.Errorf("not a host: %.80q", authority)
	}
	return host, nil
}

// resolved returns a path without "/./", "/../" and runs of slashes. As the page
// has it, the runs go last: the ".." of "/a//../b" takes only the empty component
// before it.
func resolved(path string) string {
	var kept []string
	components := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, component := range components {
		switch component {
		case ".":
		case "..":
			kept = kept[:max(0, len(kept)-1)]
		default:
			kept = append(kept, component)
			continue
		}
		if i == len(components)-1 { // "/a/.." is "/", with its slash
			kept = append(kept, "")
		}
	}
	var b strings.Builder
	for i, component := range kept {
		if component != "" {
			b.WriteString("/" + component)
		} else if i == len(kept)-1 {
			b.WriteString("/")
		}
	}
	return b.String()
}

func escaped(s string) string {
	dst := make([]byte, 0, len(s))
	for i := range len(s) {
		dst = appendByte(dst, s[i])
	}
	return string(dst)
}

// Expression is one host-suffix/path-prefix expression of a URL. The zero
// Expression is none.
type Expression struct {
	Text string // what is hashed: no scheme, no port
	DNS  bool   // it ends in the first slash behind the host, so that a name in the DNS has it too
}

// maxDirectories is how many of a URL's path prefixes end in a slash.
const maxDirectories = 4

// Expressions returns the expressions of the URL: for each host of ExpressionsBy
// the exact path with its query, the exact path, "/", and up to three that add one
// component at a time, each with its final slash. They are at most 30 and
// distinct; the first is the exact one ("URLs and Hashing"). An empty query adds
// none. The zero URL has none.
func (u URL) Expressions(r Rule) []Expression {
	paths := u.paths()
	var all []Expression
	for _, host := range u.host.ExpressionsBy(r) {
		for _, path := range paths {
			all = append(all, Expression{Text: strings.TrimSuffix(host, "/") + path, DNS: path == "/"})
		}
	}
	return all
}

// paths returns the path prefixes in the order of Expressions.
func (u URL) paths() []string {
	var paths []string
	if len(u.query) > len("?") {
		paths = append(paths, u.path+u.query)
	}
	paths = append(paths, u.path)
	end := 0
	for range maxDirectories {
		slash := strings.IndexByte(u.path[end:], '/')
		if slash < 0 {
			break
		}
		end += slash + 1
		if directory := u.path[:end]; !slices.Contains(paths, directory) {
			paths = append(paths, directory)
		}
	}
	return paths
}
