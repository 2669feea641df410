package test

import (
	"errors"
	"testing"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	"github.com/coredns-safebrowsing/safebrowsing/internal/files"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/internal/testkit"
)

// failing is a plugin whose shutdown fails when a reload would end it.
const failing = "failing"

func init() {
	plugin.Register(failing, func(c *caddy.Controller) error {
		c.Next()
		c.OnShutdown(func() error { return errors.New("this plugin cannot be shut down") })
		return nil
	})
}

func TestMain(m *testing.M) {
	clog.Discard()
	caddy.Quiet = true
	dnsserver.Quiet = true
	dnsserver.Directives = []string{
		"root", "metadata", "proxyproto", "reload", "bind", "ready", "health", "prometheus", "errors", "log", "dnstap", "dns64", "rewrite", "acl", manyClients,
		say.Plugin, failing, "cache", "tls", "template", "hosts", "forward", "whoami", "view", "multisocket",
	}
	engines.SetFirstContact(func() time.Duration { return 0 }) // real seconds are precious
	if serveWithWrongClock() {
		return
	}
	runChild()
	files.WaitLimit = time.Minute // temporary folders are removed after an end
	testkit.SideBySide(8)
	m.Run()
}
