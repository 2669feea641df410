//go:build !router

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"

	"github.com/miekg/dns"

	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// resolver is a Corefile with the plugins that a resolver for a network uses.
const resolver = `.:0 {
	bind 127.0.0.1
	metadata
	errors
	log . {
		class error
	}
	reload 1h 1m
	health 127.0.0.1:0
	ready 127.0.0.1:0
	prometheus 127.0.0.1:0
	view all {
		expr true
	}
	rewrite name old.example new.example
	acl {
		block net 192.0.2.0/24
	}
	safebrowsing {
		block HERE/own.txt
	}
	cache
	template IN A template.example {
		answer "{{ .Name }} 60 IN A 192.0.2.2"
	}
	hosts {
		192.0.2.1 new.example
		fallthrough
	}
	file HERE/zone zone.example
	forward . 127.0.0.1:1
}
https://.:0 {
	bind 127.0.0.1
	tls HERE/cert.pem HERE/key.pem
	https {
		max_connections 10
	}
	safebrowsing {
		block HERE/own.txt
	}
}
tls://.:0 {
	bind 127.0.0.1
	tls HERE/cert.pem HERE/key.pem
	safebrowsing {
		block HERE/own.txt
	}
}
quic://.:0 {
	bind 127.0.0.1
	tls HERE/cert.pem HERE/key.pem
	quic {
		max_streams 10
	}
	safebrowsing {
		block HERE/own.txt
	}
}
`

func TestAResolverWithEachOfThesePluginsAnswers(t *testing.T) {
	testkit.Long(t)
	testkit.Must(t, dnsserver.SetDirectives(directives()))
	t.Setenv("SAFEBROWSING_API_KEY", "")
	here := t.TempDir()
	testkit.Write(t, here, "zone", "@ 60 IN SOA ns.zone.example. a.zone.example. 1 60 60 60 60\n@ 60 IN NS ns.zone.example.\n@ 60 IN A 192.0.2.3\n")
	testkit.Write(t, here, "own.txt", "blocked.example\n")
	cert, _ := testkit.Certificate(t, here) // cert.pem and key.pem
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(testkit.Read(t, cert)))
	corefile := strings.ReplaceAll(resolver, "HERE", here)
	instance, err := caddy.Start(caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(corefile), ServerTypeName: "dns"})
	testkit.Must(t, err)
	defer func() {
		if err := errors.Join(errors.Join(instance.ShutdownCallbacks()...), instance.Stop()); err != nil {
			t.Error(err)
		}
	}()
	servers := instance.Servers()
	if len(servers) != 4 {
		t.Fatalf("Expected 4 servers, got %d", len(servers))
	}
	answered := 0
	for _, server := range servers { // in any order
		switch {
		case server.LocalAddr() != nil && server.Addr() != nil:
			askInPlain(t, server.LocalAddr().String())
			answered++
		case server.Addr() != nil && overTLS(server.Addr().String(), roots) == "NXDOMAIN": // the one of HTTPS does not understand
			answered++
		}
	}
	if answered != 2 {
		t.Errorf("Expected answers of the server for plain DNS and of the one for TLS, got %d", answered)
	}
}

func askInPlain(t *testing.T, server string) {
	t.Helper()
	for name, want := range map[string]string{
		"blocked.example.": "NXDOMAIN", "old.example.": "192.0.2.1", "template.example.": "192.0.2.2", "zone.example.": "192.0.2.3", "other.example.": "SERVFAIL",
	} {
		m := new(dns.Msg).SetQuestion(name, dns.TypeA)
		if got := answerOf(&dns.Client{Timeout: 10 * time.Second}, m, server); got != want {
			t.Errorf("%s: Expected %s, got %s", name, want, got)
		}
	}
}

func overTLS(server string, roots *x509.CertPool) string {
	client := &dns.Client{Net: "tcp-tls", Timeout: 10 * time.Second, TLSConfig: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1"}}
	return answerOf(client, new(dns.Msg).SetQuestion("blocked.example.", dns.TypeA), server)
}

// answerOf returns the address in the answer to a query, or else the rcode or the error.
func answerOf(client *dns.Client, m *dns.Msg, server string) string {
	r, _, err := client.Exchange(m, server)
	if err != nil {
		return err.Error()
	}
	for _, rr := range r.Answer {
		if a, ok := rr.(*dns.A); ok {
			return a.A.String()
		}
	}
	return dns.RcodeToString[r.Rcode]
}
