package test

import (
	"errors"
	"flag"
	"runtime"
	"strconv"
	"testing"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/patience"
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
		"root", "metadata", "reload", "bind", "ready", "health", "prometheus", "errors", "log", "dnstap", "dns64", "acl", manyClients,
		config.Plugin, failing, "cache", "tls", "template", "hosts", "forward", "whoami", "view",
	}
	engines.SetFirstContact(func() time.Duration { return 0 }) // real seconds are precious
	if serveWithWrongClock() {
		return
	}
	runChild()
	patience.Limit = time.Minute // temporary folders are removed after an end
	sideBySide(4)
	m.Run()
}

// sideBySide has at least n tests run at once that call Parallel: those wait more than they work.
func sideBySide(n int) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		f.Value.Set(strconv.Itoa(max(n, runtime.GOMAXPROCS(0))))
	}
}
