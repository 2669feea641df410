package main

import (
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
)

// stock is the order of CoreDNS, before main sets ours.
var stock = slices.Clone(dnsserver.Directives)

func TestOrderIsThatOfCoreDNSWithSafebrowsingBeforeCache(t *testing.T) {
	i := slices.Index(order, "safebrowsing")
	if i < 1 || order[i-1] != "acl" || order[i+1] != "cache" {
		t.Fatalf("Expected safebrowsing between acl and cache, got %v", order)
	}
	last := -1
	for _, d := range slices.Delete(slices.Clone(order), i, i+1) {
		at := slices.Index(stock, d)
		if at <= last {
			t.Errorf("%s is in another place than in CoreDNS, or not in it", d)
		}
		last = at
	}
}

// Plugins that only builds with a tag have, and those that the build with the tag router
// leaves out.
var (
	ofClusters   = []string{"autopath", "dnssec", "k8s_external", "kubernetes"}
	notOnRouters = []string{"auto", "chaos", "file", "https", "https3", "pprof", "proxyproto", "quic", "root", "secondary", "template", "tls", "transfer", "view"}
)

// TestEachBuildHasItsPlugins runs for the build tags of the test itself: .ci/builds runs it
// with each.
func TestEachBuildHasItsPlugins(t *testing.T) {
	missing := ofClusters
	switch tags := buildTags(t); {
	case slices.Contains(tags, "router"):
		missing = slices.Concat(ofClusters, notOnRouters)
	case slices.Contains(tags, "cluster"):
		missing = nil
	}
	have := directives()
	for _, name := range order {
		if got, want := slices.Contains(have, name), !slices.Contains(missing, name); got != want {
			t.Errorf("%s is in this build: %v, expected %v", name, got, want)
		}
	}
}

// buildTags returns the tags with which this test was built.
func buildTags(t *testing.T) []string {
	t.Helper()
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("This test does not know how it was built")
	}
	for _, s := range info.Settings {
		if s.Key == "-tags" {
			return strings.Split(s.Value, ",")
		}
	}
	return nil
}

// CoreDNS does not know a word of a Corefile that is not in the order.
func TestEachPluginOfThisBuildIsUsable(t *testing.T) {
	registered := caddy.ListPlugins()["others"]
	if len(registered) < 30 {
		t.Fatalf("Expected the plugins of this build, got %v", registered)
	}
	for _, name := range registered {
		if name, ours := strings.CutPrefix(name, "dns."); ours && !slices.Contains(order, name) {
			t.Errorf("%s is linked, but has no place in the order", name)
		}
	}
}
