package test

import (
	"os"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// damage changes a byte in the middle of a file.
func damage(t *testing.T, file string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	if err := os.WriteFile(file, raw, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLateConfirmationPassesShortlyAndThenBlocks(t *testing.T) {
	w := newWorld(t)
	w.threaten("evil.example.com/")
	w.google.Break("search", 1, protocoltest.Fault{Delay: 300 * time.Millisecond})
	w.start(w.corefile("confirm_timeout 20ms"))
	w.updated(1)
	m := w.ask("evil.example.com.", dns.TypeA)
	if isBlocked(m) || len(m.Answer) != 1 || m.Answer[0].Header().Ttl > 5 {
		t.Errorf("Expected the answer of upstream with a TTL of at most 5, got\n%v", m)
	}
	testkit.Until(w.t, "the answer of the search", func() bool { return isBlocked(w.ask("evil.example.com.", dns.TypeA)) })
	if n := len(w.google.Requests("search")); n != 1 {
		t.Errorf("Expected one search, got %d", n)
	}
}

func TestUnsureServfailSaysWhy(t *testing.T) {
	w := newWorld(t)
	w.threaten("evil.example.com/")
	w.google.Break("search", 1, protocoltest.Fault{Status: 429})
	w.start(w.corefile("unsure servfail"))
	w.updated(1)
	for i, want := range []uint16{dns.ExtendedErrorCodeNetworkError, dns.ExtendedErrorCodeOther} {
		m := w.ask("evil.example.com.", dns.TypeA)
		opt := m.IsEdns0()
		if m.Rcode != dns.RcodeServerFailure || opt == nil || len(opt.Option) != 1 || opt.Option[0].(*dns.EDNS0_EDE).InfoCode != want {
			t.Errorf("Query %d: Expected SERVFAIL with EDE %d, got\n%v", i, want, m)
		}
	}
	if n := len(w.google.Requests("search")); n != 1 {
		t.Errorf("Expected one search, then back-off, got %d", n)
	}
}

func TestThreatIsBlockedThoughItsOwnServersAreSlow(t *testing.T) {
	w := newWorld(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	defer close(answer)
	tell := sync.OnceFunc(func() { close(asked) })
	w.upstream = startUpstreamWith(t, func(dns.Question) []dns.RR {
		tell()
		<-answer
		return nil
	})
	w.threaten("evil.example.com/")
	w.start(w.corefile())
	w.updated(1)
	w.wantBlocked("evil.example.com.", dns.TypeA, phishing)
	<-asked // the name server has the query, and has not answered
}
