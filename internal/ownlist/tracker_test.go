package ownlist

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// The heads come from lists that are in use.
func TestTheHeadOfAListSaysWhereMistakesAreReported(t *testing.T) {
	for name, tc := range map[string]struct{ head, want string }{
		"HaGeZi":           {"# Title: T\n# Homepage: https://github.com/hagezi/dns-blocklists\n# License: https://example.com/LICENSE\n# Issues: https://github.com/hagezi/dns-blocklists/issues\n# Expires: 1 day\n", "https://github.com/hagezi/dns-blocklists/issues"},
		"AdGuard":          {"! Title: AdGuard DNS filter\n! Description: x\n! Homepage: https://github.com/AdguardTeam/AdGuardSDNSFilter\n", "https://github.com/AdguardTeam/AdGuardSDNSFilter"},
		"EasyList":         {"[Adblock Plus 2.0]\n! Homepage: https://easylist.to/\n! GitHub issues: https://github.com/easylist/easylist/issues\n", "https://github.com/easylist/easylist/issues"},
		"StevenBlack":      {"# Title: StevenBlack/hosts\n#\n# Project home page: https://github.com/StevenBlack/hosts\n", "https://github.com/StevenBlack/hosts"},
		"RPZ":              {"; Issues: http://lists.example/bugs\n", "http://lists.example/bugs"},
		"none":             {"# a list of mine\n", ""},
		"a sentence":       {"# Issues are reported by mail: bugs@example.com\n", ""},
		"no URL":           {"# Issues: see below\n", ""},
		"script":           {"# Issues: javascript:alert(1)\n", ""},
		"file":             {"# Issues: file:///etc/shadow\n", ""},
		"without a host":   {"# Issues: https:///x\n", ""},
		"with a password":  {"# Issues: https://me:secret@example.com/\n", ""},
		"with a query":     {"# Issues: https://example.com/?token=secret\n", ""},
		"markup":           {"# Issues: https://example.com/\"><script>\n", ""},
		"control":          {"# Issues: https://example.com/\x1b[31m\n", ""},
		"another script":   {"# Issues: https://exämple.com/\n", ""},
		"long":             {"# Issues: https://example.com/" + strings.Repeat("x", 200) + "\n", ""},
		"after the head":   {strings.Repeat("#\n", headLines) + "# Issues: https://example.com/\n", ""},
		"in a long line":   {"# Issues: https://example.com/ " + strings.Repeat("x", maxLine) + "\n", ""},
		"not in a comment": {"Issues: https://example.com/\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := testkit.Write(t, t.TempDir(), "list.txt", tc.head+"blocked.example\n")
			f, err := Open(Config{Path: path, Name: "the list"}, func(Event) {})
			must(t, err)
			defer f.Close()
			other := Hosts("Corefile", nil)
			if got := Tracker([]*File{other, f}, f.State().Named); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if got := Tracker([]*File{other, f}, filepath.Base(path)); got != "" {
				t.Errorf("another list: %q", got)
			}
		})
	}
}
