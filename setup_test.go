package safebrowsing

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coredns/caddy"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
)

// stanza parses properties as they stand between the braces.
func stanza(t *testing.T, text string) (config.Config, error) {
	t.Helper()
	c := caddy.NewTestController("dns", text)
	c.ServerBlockKeys = []string{"."}
	return config.Parse(c, "")
}

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWrongPlaceInTheOrderIsRefused(t *testing.T) {
	tests := []struct {
		directives string
		ok         bool
	}{
		{"errors acl safebrowsing cache forward", true},
		{"errors", true}, // not compiled in by name: nothing to say
		{"errors acl cache safebrowsing forward", false},
		{"errors cache forward on sign view safebrowsing", false},
		{"errors hosts safebrowsing", false},
	}
	for _, tc := range tests {
		err := checkPosition(strings.Fields(tc.directives))
		if (err == nil) != tc.ok {
			t.Errorf("%s: Expected ok %v, got %v", tc.directives, tc.ok, err)
		}
		if err != nil && !strings.Contains(err.Error(), "plugin.cfg") {
			t.Errorf("%s: Expected advice, got %v", tc.directives, err)
		}
	}
}
