package say

import (
	"runtime/debug"
	"testing"
)

func TestTheVersionIsThatOfTheTag(t *testing.T) {
	other := &debug.Module{Path: "github.com/coredns/coredns", Version: "v1.15.0"}
	for _, tc := range []struct {
		name, stamped string
		info          *debug.BuildInfo // nil: the program has none
		want          string
	}{
		{"a release", "v1.2.3", &debug.BuildInfo{Main: debug.Module{Path: module, Version: "(devel)"}}, "1.2.3"},
		{"go install of a tag", "", &debug.BuildInfo{Main: debug.Module{Path: module, Version: "v1.2.3"}}, "1.2.3"},
		{"a CoreDNS built by plugin.cfg", "", &debug.BuildInfo{Main: *other, Deps: []*debug.Module{other, {Path: module, Version: "v1.2.3"}}}, "1.2.3"},
		{"a replaced module has the tag of none", "", &debug.BuildInfo{Main: *other, Deps: []*debug.Module{{Path: module, Version: "v1.2.3", Replace: &debug.Module{Path: "../x"}}}}, development},
		{"a checkout without a tag", "", &debug.BuildInfo{Main: debug.Module{Path: module, Version: "v0.0.0-20260101000000-0123456789ab+dirty"}}, development},
		{"a checkout without git", "", &debug.BuildInfo{Main: debug.Module{Path: module, Version: "(devel)"}}, development},
		{"no build info", "", nil, development},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := number(tc.stamped, func() (*debug.BuildInfo, bool) { return tc.info, tc.info != nil })
			if got != tc.want {
				t.Errorf("Expected %s, got %s", tc.want, got)
			}
		})
	}
}
