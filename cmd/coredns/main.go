// Command coredns is a CoreDNS with the safebrowsing plugin and with the plugins that a
// resolver for a network needs. It leaves out the plugins for clouds and clusters. Flags
// and Corefile are CoreDNS's own, but for the flag -check, which only reads the Corefile. With a word
// such as status or why it asks the CoreDNS that runs, see internal/control.
//
// Two build tags change the set of plugins. With router it is small: it leaves out what a
// router at home does not need. With cluster it has, in addition, what the DNS server of a
// Kubernetes cluster needs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	// The plugin in the folder metrics has the name prometheus in a Corefile.
	_ "github.com/coredns/coredns/plugin/acl"
	_ "github.com/coredns/coredns/plugin/any"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/bufsize"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/cancel"
	_ "github.com/coredns/coredns/plugin/debug"
	_ "github.com/coredns/coredns/plugin/dns64"
	_ "github.com/coredns/coredns/plugin/dnstap"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/header"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/local"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metadata"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/minimal"
	_ "github.com/coredns/coredns/plugin/multisocket"
	_ "github.com/coredns/coredns/plugin/nsid"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
	_ "github.com/coredns/coredns/plugin/rewrite"
	_ "github.com/coredns/coredns/plugin/shed"
	_ "github.com/coredns/coredns/plugin/timeouts"
	_ "github.com/coredns/coredns/plugin/whoami"

	_ "github.com/coredns-safebrowsing/safebrowsing"
	"github.com/coredns-safebrowsing/safebrowsing/internal/control"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
)

// order is the order in which plugins see a query: CoreDNS's order (its plugin.cfg), with
// safebrowsing directly before cache. A verdict is then as fresh as the lists, not as old as
// a cached answer. It has the plugins of all builds.
var order = []string{
	"root", "metadata", "cancel", "proxyproto", "quic", "https", "https3", "timeouts", "multisocket",
	"reload", "nsid", "bufsize", "bind", "debug", "ready", "health", "pprof", "shed", "prometheus",
	"errors", "log", "dnstap", "local", "dns64", "any", "chaos", "loadbalance", "rewrite", "autopath", "acl",
	"safebrowsing",
	"cache", "header", "dnssec", "tls", "minimal", "template", "transfer", "hosts", "k8s_external", "kubernetes",
	"file", "auto", "secondary", "loop", "forward", "whoami", "view",
}

// directives returns the part of order that is in this build. CoreDNS refuses a Corefile with
// another word as an unknown directive.
func directives() []string {
	return slices.DeleteFunc(slices.Clone(order), func(name string) bool {
		_, err := caddy.DirectiveAction("dns", name)
		return err != nil
	})
}

// tellManager makes the process tell its service manager, once, when the ports listen, and when it ends.
func tellManager() {
	tell := sync.OnceFunc(control.TellManager)
	caddy.RegisterEventHook("manager", func(event caddy.EventName, _ any) error {
		if event == caddy.InstanceStartupEvent {
			tell()
		}
		return nil
	})
	caddy.OnProcessExit = append(caddy.OnProcessExit, control.TellManagerEnd)
}

func main() {
	if control.IsCommand(os.Args) {
		os.Exit(control.Main(context.Background(), os.Args, os.Stdout, os.Stderr))
	}
	if err := dnsserver.SetDirectives(directives()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	checkOnly := flag.Bool("check", false, "Read the Corefile, say whether it can be used, and exit")
	flag.Parse() // and again in Run
	if *checkOnly {
		if err := check(os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	tune()
	watchPorts()
	tellManager()
	// coredns -version prints it after the versions of CoreDNS and of Go.
	coremain.GitCommit = "safebrowsing " + say.Version
	coremain.Run()
}
