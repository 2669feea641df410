package test

import (
	"testing"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/protocoltest"
)

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
