package main

import (
	"runtime"
	"runtime/debug"
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

func TestVersionOfABuild(t *testing.T) {
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	deps := []*debug.Module{{Path: "github.com/coredns/caddy", Version: "v1.1.4"}, {Path: "github.com/coredns/coredns", Version: "v1.15.0"}}
	replaced := []*debug.Module{{Path: "github.com/coredns/coredns", Version: "v1.15.0", Replace: &debug.Module{Path: "example/fork", Version: "v1.16.0"}}}
	for name, test := range map[string]struct {
		info *debug.BuildInfo
		want string // after version and before Go, and the end
	}{
		"nothing known": {nil, "CoreDNS unknown | "},
		"a release":     {&debug.BuildInfo{Deps: deps}, "CoreDNS 1.15.0 | "},
		"a fork":        {&debug.BuildInfo{Deps: replaced}, "CoreDNS 1.16.0 | "},
		"a checkout": {&debug.BuildInfo{Deps: deps, Settings: []debug.BuildSetting{setting("vcs.revision", "abc"), setting("vcs.modified", "false")}},
			"CoreDNS 1.15.0 | , revision abc"},
		"a changed checkout": {&debug.BuildInfo{Deps: deps, Settings: []debug.BuildSetting{setting("vcs.revision", "abc"), setting("vcs.modified", "true")}},
			"CoreDNS 1.15.0 | , revision abc (modified)"},
	} {
		begin, end, _ := strings.Cut(test.want, " | ")
		want := "safebrowsing " + say.Version + ", " + begin + ", " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + end
		if got := buildOf(test.info).String(); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
