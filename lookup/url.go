package lookup

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// URL is a URL in canonical form ("URLs and Hashing"): a scheme, a host, a path and
// possibly a query. User, password, port and fragment are removed. Safe Browsing cannot
// tell two URLs apart that differ only in the scheme or in the question mark of an
// empty query; all other different URLs have different expressions. The zero URL has no
// expressions. A URL is an immutable value and safe for concurrent use.
type URL struct {
	scheme string // lower case
	host   Host
	path   string // begins with a slash, escaped
	query  string // with its question mark, escaped; "" if there is none
}

// Host returns the host of the URL.
func (u URL) Host() Host { return u.host }

// InClearText reports whether what is sent to a URL can be read on its way over a public network: by
// http, and not to this machine, a private address or a name that never leaves a site, see Host.Public.
func InClearText(url string) bool {
	u, err := ParseURL(zoneOfAddress.ReplaceAllString(url, "]"))
	return err == nil && u.scheme == "http" && u.host.Public()
}

// zoneOfAddress is the zone of an IPv6 address in a URL, such as %25eth0 (RFC 6874), which ParseURL refuses.
var zoneOfAddress = regexp.MustCompile(`%25[^]/]*\]`)

// String returns the URL in canonical form, or "" for the zero URL. ParseURL of that
// string returns the same URL.
func (u URL) String() string {
	if u == (URL{}) {
		return ""
	}
	return u.scheme + "://" + u.host.name + u.path + u.query
}

// ignored removes the bytes that have no meaning anywhere in a URL ("URLs and Hashing").
var ignored = strings.NewReplacer("\t", "", "\r", "", "\n", "")

// ParseURL returns the canonical form of a URL with a host, of any scheme. If text has
// no scheme, the scheme is http. Text may hold any bytes; the error says why they are
// not a URL.
//
// ParseURL decodes escapes before it splits the URL, as "URLs and Hashing" demands: an
// escaped slash separates, an escaped question mark begins the query. But it removes
// user and password first. Otherwise their escapes could hide the host that a browser
// would visit.
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

// withoutUser removes user and password from a URL with a scheme whose escapes have
// not been decoded yet.
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

// cutScheme splits a URL after its "://". It returns the scheme in lower case, or "" if
// there is none.
func cutScheme(text string) (scheme, rest string, err error) {
	scheme, rest, found := strings.Cut(text, "://")
	if !found || strings.ContainsAny(scheme, "/?") { // this "://" belongs to a path or query
		return "", text, nil
	}
	scheme = strings.ToLower(scheme)
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789+-." // RFC 2396 section 3.1: and it begins with a letter
	if scheme == "" || scheme[0] < 'a' || strings.Trim(scheme, allowed) != "" {
		return "", "", errors.New(`no scheme before "://"`)
	}
	return scheme, rest, nil
}

// cutAuthority splits the text after the scheme before its path or query.
func cutAuthority(text string) (authority, rest string) {
	if end := strings.IndexAny(text, "/?"); end >= 0 {
		return text[:end], text[end:]
	}
	return text, ""
}

// checkBare returns an error if the authority of a text without "://" has a colon that
// does not begin a port: "mailto:a@example.com" and "http:/example.com" have a scheme.
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

// hostOf returns the canonical host of an authority whose escapes have been decoded.
// User and password end at the last @, as in a browser. A backslash is an error: some
// programs read it as a slash and would visit another host.
func hostOf(authority string) (Host, error) {
	if strings.Contains(authority, `\`) {
		return Host{}, errors.New("a backslash in the host")
	}
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	name := authority
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, ']') {
		if !isNumber(name[colon+1:]) {
			return Host{}, errors.New("the port is not a number")
		}
		name = name[:colon]
	}
	if strings.Trim(name, ".") == "" {
		return Host{}, errors.New("no host")
	}
	// The host of a URL may hold a space: the published examples have it as %20. A name
	// that a person wrote may not.
	host, ok := canonicalHost(name, strings.TrimSuffix(notInHost[1:], " "))
	if !ok {
		return Host{}, fmt.Errorf("not a host: %.80q", authority)
	}
	return host, nil
}

// resolved returns a path without "/./", "/../" and runs of slashes. The runs go last
// ("URLs and Hashing"): in "/a//../b" the ".." removes only the empty component before
// it.
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

// escaped returns s with its bytes escaped as appendByte does.
func escaped(s string) string {
	dst := make([]byte, 0, len(s))
	for i := range len(s) {
		dst = appendByte(dst, s[i])
	}
	return string(dst)
}

// Expression is one host-suffix/path-prefix expression of a URL.
type Expression struct {
	Text string // the hashed text: no scheme, no port
	DNS  bool   // the path is "/": the DNS name of the host has this expression too
}

// maxDirectories is the most path prefixes of a URL that end in a slash, "/" included
// ("URLs and Hashing").
const maxDirectories = 4

// Expressions returns the expressions of the URL ("URLs and Hashing"): at most 30
// distinct ones, the exact URL first. For each host of ExpressionsBy there are the exact
// path with its query, the exact path, "/", and up to three directories, one component
// longer each. An empty query adds none. The zero URL has no expressions.
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
