package ownlist

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// public stands in for an address of somebody outside.
var public = netip.MustParseAddr("127.0.0.1")

// elsewhereServer starts a server at 127.0.0.2, or skips the test.
func elsewhereServer(t *testing.T, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Skip(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	s.Start()
	t.Cleanup(s.Close)
	return s.URL
}

// A list must not have this machine ask what only machines inside may, and quote the answer.
func TestARedirectLeadsNoPublicAddressInwards(t *testing.T) {
	var asked atomic.Int32
	inside := elsewhereServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		io.WriteString(w, "inside.example\n")
	}))
	f := newFixture(t, nil)
	f.client.Transport = inwards{http.DefaultTransport.(*http.Transport).Clone(), func(a netip.Addr) bool { return a != public }}
	s := f.fetch(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, inside+"/latest/meta-data", http.StatusFound)
	})
	if !strings.HasPrefix(s.Error, errInward.Error()+", 127.0.0.2") || asked.Load() != 0 || f.inForce() != 0 {
		t.Errorf("asked %d times: %+v", asked.Load(), s)
	}
	if wait := time.Until(s.Next); wait < 10*time.Minute {
		t.Errorf("a server has answered, and the next attempt is after %s", wait)
	}
	// Within a network, and at one address, redirects are followed.
	for name, inward := range map[string]func(netip.Addr) bool{
		"from inside": isInward, "outside": func(netip.Addr) bool { return false },
	} {
		f := newFixture(t, nil)
		f.client.Transport = inwards{http.DefaultTransport.(*http.Transport).Clone(), inward}
		s := f.fetch(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inside, http.StatusFound) })
		if s.Failing() || f.inForce() != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func TestAddressesThatAreNotPublic(t *testing.T) {
	for text, want := range map[string]bool{
		"127.0.0.1": true, "::1": true, "10.1.2.3": true, "192.168.0.1": true, "172.16.0.1": true, "169.254.169.254": true,
		"fe80::1": true, "fd00::1": true, "::ffff:127.0.0.1": true, "0.0.0.0": true, "::": true, "100.64.0.1": true,
		"192.0.2.1": false, "2001:db8::1": false, "172.32.0.1": false, "100.128.0.1": false,
	} {
		if got := isInward(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// What a server sends is in no error: it may be of a server that speaks no HTTP.
func TestNoWordOfAnAnswerIsInAnError(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"not HTTP":   raw("SSH-2.0-S3CRET\r\n"),
		"a header":   raw("HTTP/1.1 200 OK\r\nS3CRET\r\n\r\n"),
		"a status":   raw("HTTP/1.1 S3CRET\r\n\r\n"),
		"no list":    send("S3CRET = yes, it is\n"),
		"the length": raw("HTTP/1.1 200 OK\r\nContent-Length: S3CRET\r\n\r\n"),
	} {
		if s := newFixture(t, nil).fetch(answer); !s.Failing() || strings.Contains(s.Error, "S3CRET") {
			t.Errorf("%s: %q", name, s.Error)
		}
	}
}
