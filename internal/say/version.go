package say

import (
	"cmp"
	"runtime/debug"
	"strings"
)

const module = "github.com/coredns-safebrowsing/safebrowsing"

// stamped is the version of a release. deploy/release sets it by -ldflags -X.
var stamped string

// Version is the version of the plugin and of its command line, without a leading v: the
// tag's, of a release or of the module that a CoreDNS was built with. The server reads it
// in the User-Agent.
var Version = number(stamped, debug.ReadBuildInfo)

// development is the version of a build in a checkout without a tag.
const development = "0.1.0"

func number(stamped string, read func() (*debug.BuildInfo, bool)) string {
	if stamped != "" {
		return strings.TrimPrefix(stamped, "v")
	}
	info, ok := read()
	if !ok {
		return development
	}
	tag := ""
	for _, m := range append(info.Deps, &info.Main) {
		// v0.0.0 stands for no tag: of a checkout, of a replaced module.
		if m.Path == module && m.Replace == nil && strings.HasPrefix(m.Version, "v") && !strings.HasPrefix(m.Version, "v0.0.0") {
			tag = m.Version[1:]
		}
	}
	return cmp.Or(tag, development)
}
