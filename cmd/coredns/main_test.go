package main

import (
	"slices"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
)

// stock is the order of CoreDNS, before main sets ours.
var stock = slices.Clone(dnsserver.Directives)

func TestOrderIsThatOfCoreDNSWithSafebrowsingBeforeCache(t *testing.T) {
	i := slices.Index(directives, "safebrowsing")
	if i < 1 || directives[i-1] != "acl" || directives[i+1] != "cache" {
		t.Fatalf("Expected safebrowsing between acl and cache, got %v", directives)
	}
	last := -1
	for _, d := range slices.Delete(slices.Clone(directives), i, i+1) {
		at := slices.Index(stock, d)
		if at <= last {
			t.Errorf("%s is in another place than in CoreDNS, or not in it", d)
		}
		last = at
	}
}

func TestEveryDirectiveIsCompiledInAndThereforeUsable(t *testing.T) {
	if err := dnsserver.SetDirectives(directives); err != nil {
		t.Fatal(err)
	}
	for _, d := range directives {
		if _, err := caddy.DirectiveAction("dns", d); err != nil {
			t.Errorf("%s: %v", d, err)
		}
	}
}

func TestWhatAResolverNeedsIsThere(t *testing.T) {
	for _, d := range []string{
		"bind", "cache", "forward", "hosts", "health", "ready", "prometheus", "errors", "log", "reload",
		"tls", "https", "quic", "view", "acl", "metadata", "rewrite", "template", "file",
	} {
		if !slices.Contains(directives, d) {
			t.Errorf("%s is missing", d)
		}
	}
}
