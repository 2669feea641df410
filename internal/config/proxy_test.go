package config

import (
	"strings"
	"testing"
)

// net/http would go without a proxy and say nothing.
func TestAProxyThatCannotBeOneIsSaid(t *testing.T) {
	for value, says := range map[string]bool{
		"":                                false,
		"http://proxy.example:3128":       false,
		"proxy.example:3128":              false,
		"socks5://user:pw@127.0.0.1":      false,
		"http://user:secret@proxy:%zz":    true,
		"http://":                         true,
		"ftp://user:secret@proxy.example": true,
	} {
		for _, name := range proxyVariables {
			t.Setenv(name, "")
		}
		t.Setenv("HTTPS_PROXY", value)
		for _, text := range []string{"api_key K", "block https://lists.example.org/hosts"} {
			c, err := stanza(t, "safebrowsing {\ndb /nonexistent/db\n"+text+"\n}")
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(c.Warnings, "\n")
			if strings.Contains(got, "$HTTPS_PROXY is not the URL of a proxy") != says || strings.Contains(got, "secret") {
				t.Errorf("%q with %s: got %q", value, text, got)
			}
		}
		if c, err := stanza(t, "safebrowsing {\n"+listing(t)+"\n}"); err != nil || strings.Contains(strings.Join(c.Warnings, ""), "PROXY") {
			t.Errorf("Nobody is asked, but %q, %v", c.Warnings, err)
		}
	}
}
