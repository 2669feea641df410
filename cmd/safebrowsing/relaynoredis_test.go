//go:build noredis

package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestWithoutRedis(t *testing.T) {
	var errOut bytes.Buffer
	status := run(t.Context(), []string{"safebrowsing", "relay", "-endpoint", "http://127.0.0.1:1", "-db", t.TempDir(),
		"-listen", "127.0.0.1:0", "-admin", "off", "-redis", "redis://127.0.0.1:6379"}, strings.NewReader(""), new(bytes.Buffer), &errOut)
	if status != misuse || !strings.Contains(errOut.String(), "has no Redis") || !strings.Contains(errOut.String(), "leave out -redis") {
		t.Errorf("Expected what to do, got status %d and %q", status, &errOut)
	}
}
