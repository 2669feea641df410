package safebrowsing

import (
	"strings"
	"testing"
)

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
