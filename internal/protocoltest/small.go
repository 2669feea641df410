package protocoltest

import (
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Small starts a server until the test ends, and returns it and its URL. Its lists are se-4b, with
// evil.example/ and harmless.example/, which is no threat, mw-4b, with mal.example/, and uws-4b.
// The minimum wait of each is an hour.
func Small(t testing.TB) (s *Server, endpoint string) {
	t.Helper()
	s = New(t)
	for _, list := range []string{"se-4b", "mw-4b", "uws-4b"} {
		s.SetMinimumWait(list, time.Hour)
		s.Publish(list, nil)
	}
	load := "se-4b evil.example/\nmw-4b mal.example/\nse-4b harmless.example/ unconfirmed\n"
	if err := Load(s, strings.NewReader(load)); err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewServer(s)
	t.Cleanup(listening.Close)
	return s, listening.URL
}
