package config

import (
	"strings"
	"testing"
)

func TestStatusPageOfOthersNeedsTheWordPublic(t *testing.T) {
	for line, want := range map[string]string{
		"127.0.0.1:8053":             "",
		"127.7.7.7:8053 names":       "",
		"[::1]:8053":                 "",
		"[::ffff:127.0.0.1]:8053":    "",
		"localhost:8053":             "",
		"192.0.2.1:8053 public":      "",
		":8053 names public":         "",
		"192.0.2.1:8053":             "other machines can reach 192.0.2.1:8053",
		"0.0.0.0:8053 names":         "add public if that is wanted, or use 127.0.0.1:8053",
		":8053":                      "add public",
		"[::]:8053":                  "add public",
		"127.0.0.1":                  "is not an address with a port, such as 127.0.0.1:8053",
		"status.example:8053 public": `"status.example" is not an IP address`,
		"127.0.0.1:http":             "the port is not a number from 0 to 65535",
		"127.0.0.1:70000":            "the port is not a number from 0 to 65535",
		"127.0.0.1:8053 name":        `"name" is neither names nor public`,
	} {
		c, err := stanza(t, "safebrowsing {\n endpoint http://127.0.0.1:1\n status "+line+"\n}")
		switch {
		case want == "" && (err != nil || c.Status == "" || c.StatusNames != strings.Contains(line, "names")):
			t.Errorf("status %s: %v, %q %v", line, err, c.Status, c.StatusNames)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("status %s: Expected an error with %q, got %v", line, want, err)
		}
	}
}
