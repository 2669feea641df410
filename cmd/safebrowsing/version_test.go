package main

import (
	"runtime"
	"strings"
	"testing"

	"github.com/coredns/coredns/coremain"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

func TestVersion(t *testing.T) {
	want := "safebrowsing " + say.Version + ", CoreDNS " + coremain.CoreVersion + ", " + runtime.Version()
	for _, args := range []string{"version", "--version", "-version"} {
		status, out, errOut := invoke(t, args)
		if status != 0 || errOut != "" || !strings.HasPrefix(out, want) || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: status %d, %q, %s, want %s", args, status, out, errOut, want)
		}
	}
	_, out, _ := invoke(t, "version", "-json")
	expect(t, "keys", keys(out), "version coredns go platform revision modified")
	if got := decode[build](t, out)[0]; got.Version != say.Version || got.CoreDNS != coremain.CoreVersion || got.Go != runtime.Version() {
		t.Errorf("got %+v", got)
	}
}
