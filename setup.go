package safebrowsing

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"

	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
)

func init() { plugin.Register(config.Plugin, setup) }

// setup reads the Corefile. It starts nothing: if the Corefile is refused later,
// nothing has to be undone.
func setup(c *caddy.Controller) error {
	if err := checkPosition(dnsserver.Directives); err != nil {
		return plugin.Error(config.Plugin, err)
	}
	cfg, err := config.Parse(c, dnsserver.GetConfig(c).Root)
	if err != nil {
		return plugin.Error(config.Plugin, err)
	}
	if err := config.Claim(c, &cfg); err != nil {
		return plugin.Error(config.Plugin, err)
	}
	s := newPlugin(cfg, nil)
	if cfg.Explain { // else the server refuses queries of class CH
		dnsserver.EnableChaos[config.Plugin] = struct{}{}
	}
	live(c, s)
	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		s.Next = next
		return s
	})
	return nil
}

// live has a server block start and end with its instance of CoreDNS.
func live(c *caddy.Controller, s *SafeBrowsing) {
	generation := generationOf(c)
	said := saidOf(c)
	all := configsOf(c)
	*all = append(*all, &s.cfg)
	c.OnStartup(func() error {
		file, blocks := corefileOf(generation)
		loop := s.cfg.LoopWarning(blocks, config.SystemResolvers(config.ResolvConf), config.MachineAddresses())
		say(&s.cfg, append(config.HiddenViews(file, blocks), loop), said)
		s.policy.Need(config.NeededBy(*all, config.ForwardTargets(blocks))) // all blocks have been read by now
		if err := serving.start(s, generation); err != nil {
			return plugin.Error(config.Plugin, err)
		}
		return nil
	})
	release := func() error {
		serving.end(s)
		s.names.end(time.Now())
		return nil
	}
	// At the end of the process CoreDNS still serves queries after OnShutdown, for as
	// long as health's lameduck lasts. So the engine stays until OnFinalShutdown. In a
	// reload the servers have stopped before OnShutdown.
	var restarting atomic.Bool
	c.OnRestart(func() error {
		restarting.Store(true)
		return nil
	})
	c.OnShutdown(func() error {
		if restarting.Load() {
			return release()
		}
		return nil
	})
	c.OnFinalShutdown(release)
	c.OnRestartFailed(func() error {
		restarting.Store(false)
		serving.endDead(0)
		return nil
	})
}

// mustFollow are plugins that answer queries themselves. This plugin must come
// before them in the order: it never sees a query that one of them has answered.
var mustFollow = []string{"cache", "template", "hosts", "file", "auto", "secondary", "forward", "grpc", "erratic", "whoami"}

// checkPosition refuses a CoreDNS that was compiled with this plugin in a place
// where it would load and block nothing.
func checkPosition(directives []string) error {
	ours := slices.Index(directives, config.Plugin)
	for i, d := range directives[:max(0, ours)] {
		if slices.Contains(mustFollow, d) {
			return fmt.Errorf("compiled in after plugin %s, number %d in the order, where it would block nothing: "+
				"in plugin.cfg move the line %q to directly before \"cache:cache\", then run go generate and build again", d, i+1, config.Plugin+":…")
		}
	}
	return nil
}

// configsKey is where an instance of CoreDNS keeps what its Corefile says in each server block
// with this plugin.
type configsKey struct{}

// configsOf returns what the server blocks say that the instance has read so far.
func configsOf(c *caddy.Controller) *[]*config.Config {
	all, ok := c.Get(configsKey{}).(*[]*config.Config)
	if !ok {
		all = new([]*config.Config)
		c.Set(configsKey{}, all)
	}
	return all
}

// saidKey is where an instance of CoreDNS keeps what it has logged about its
// Corefile.
type saidKey struct{}

// saidOf returns what the instance has logged about its Corefile: server blocks
// that import the same lines log them once.
func saidOf(c *caddy.Controller) map[string]bool {
	said, ok := c.Get(saidKey{}).(map[string]bool)
	if !ok {
		said = make(map[string]bool)
		c.Set(saidKey{}, said)
	}
	return said
}

// say logs the warnings and notes of the stanza, and warnings about the whole Corefile, that
// are not in said. It is not safe for concurrent use of said: functions of OnStartup run one
// after the other.
func say(c *config.Config, whole []string, said map[string]bool) {
	sayOnce(slices.Concat(c.Warnings, whole), said, func(text string) { log.Warning(text) })
	sayOnce(c.Notes, said, func(text string) { log.Info(text) })
}

// sayOnce logs texts that are not in said. "" is no text.
func sayOnce(texts []string, said map[string]bool, log func(string)) {
	for _, text := range texts {
		if text != "" && !said[text] {
			log(text)
		}
		said[text] = true
	}
}
