package safebrowsing

import (
	"testing"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
)

func TestMain(m *testing.M) {
	clog.Discard()
	caddy.Quiet = true
	dnsserver.Quiet = true
	dnsserver.Directives = []string{
		"root", "metadata", "reload", "bind", "ready", "prometheus", "errors", "log", "dnstap", "acl",
		pluginName, "cache", "tls", "template", "hosts", "forward", "whoami", "view",
	}
	engines.edge.firstContact = func() time.Duration { return 0 } // real seconds are precious
	m.Run()
}
