package ownlist

import (
	"bytes"
	"net/url"
	"strings"
)

// Where the makers of a list want to be told of mistakes is in the comments at its head, such as
// "# Issues: https://github.com/hagezi/dns-blocklists/issues" and "! Homepage: https://oisd.nl".

const (
	headLines  = 64  // of a list, in which a tracker is looked for
	maxTracker = 200 // bytes of a URL
)

// trackerWords are the words before the URL, the best first. A home page is better than nothing.
var trackerWords = []string{"issues", "report issues", "github issues", "report an issue", "false positives", "support", "homepage", "home page", "project home page", "website"}

// tracker is where mistakes of a list are to be reported.
type tracker struct {
	url  string
	rank int // of its word, from 1; 0: there is none
}

// note takes a comment at the head of a list.
func (t *tracker) note(comment []byte) {
	word, value, ok := bytes.Cut(bytes.TrimLeft(comment, "#!; \t"), []byte(":"))
	if !ok || len(word) > maxText {
		return
	}
	word = bytes.ToLower(bytes.TrimSpace(word))
	for i, w := range trackerWords {
		if string(word) == w && (t.rank == 0 || i+1 < t.rank) {
			if u := trackerURL(string(bytes.TrimSpace(value))); u != "" {
				t.url, t.rank = u, i+1
			}
		}
	}
}

// trackerURL returns a URL that people may be led to, "" if the text is none: by HTTP, with a host, and
// without a user and a query, since a list by URL may be what only this machine may read.
func trackerURL(text string) string {
	if len(text) > maxTracker || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune("\"'<>`\\", r) }) {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return ""
	}
	return u.String()
}

// Tracker returns where the head of the list of a name says that mistakes are reported; "": it does not,
// or none of the files has the name. It is safe for concurrent use.
func Tracker(all []*File, name string) string {
	for _, f := range all {
		if f.name == name {
			return f.content.Load().summary.tracker.url
		}
	}
	return ""
}
