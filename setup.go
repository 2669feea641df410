package safebrowsing

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
)

func init() { plugin.Register(pluginName, setup) }

// setup reads the Corefile. It starts nothing: a Corefile that is refused later
// on leaves nothing behind.
func setup(c *caddy.Controller) error {
	if err := checkPosition(dnsserver.Directives); err != nil {
		return plugin.Error(pluginName, err)
	}
	cfg, err := parse(c, dnsserver.GetConfig(c).Root)
	if err != nil {
		return plugin.Error(pluginName, err)
	}
	if err := claim(c, cfg); err != nil {
		return plugin.Error(pluginName, err)
	}
	s := &SafeBrowsing{config: cfg}
	if cfg.explain { // else the server refuses queries of class CH
		dnsserver.EnableChaos[pluginName] = struct{}{}
	}
	generation := generationOf(c)
	said := saidOf(c)
	c.OnStartup(func() error {
		cfg.say(said)
		if err := engines.acquire(s, generation); err != nil {
			return plugin.Error(pluginName, err)
		}
		return nil
	})
	release := func() error {
		engines.release(s)
		s.names.end(s.monitor)
		return nil
	}
	// At the end of the process queries are served on after OnShutdown, for as
	// long as health's lameduck lasts: the engine is kept till the very end. In a
	// reload the servers have been stopped by then.
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
		engines.releaseDead()
		return nil
	})
	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		s.Next = next
		return s
	})
	return nil
}

// answering are plugins that answer queries. Before one of them this plugin
// must stand, else it would never see what they answer.
var answering = []string{"cache", "template", "hosts", "file", "auto", "secondary", "forward", "grpc", "erratic", "whoami"}

// checkPosition refuses a CoreDNS that was compiled with this plugin in a place
// where it would load and block nothing.
func checkPosition(directives []string) error {
	ours := slices.Index(directives, pluginName)
	for i, d := range directives[:max(0, ours)] {
		if slices.Contains(answering, d) {
			return fmt.Errorf("compiled in after plugin %s, number %d in the order, where it would block nothing: "+
				"in plugin.cfg move the line %q to directly before \"cache:cache\", then run go generate and build again", d, i+1, pluginName+":…")
		}
	}
	return nil
}

// instanceKey is what this plugin keeps in the storage of a CoreDNS instance,
// which is made anew with each reading of the Corefile.
type instanceKey struct{}

type instance struct {
	generation uint64
	folders    map[string]settings   // who uses which folder
	identities map[identity]settings // who asks which server
}

var generations atomic.Uint64

func instanceOf(c *caddy.Controller) *instance {
	if i, ok := c.Get(instanceKey{}).(*instance); ok {
		return i
	}
	i := &instance{generation: generations.Add(1), folders: make(map[string]settings), identities: make(map[identity]settings)}
	c.Set(instanceKey{}, i)
	return i
}

// generationOf returns a number that grows with each reading of the Corefile.
func generationOf(c *caddy.Controller) uint64 { return instanceOf(c).generation }

// liveGenerations are those of the instances that serve, or are being started.
func liveGenerations() map[uint64]bool {
	live := make(map[uint64]bool)
	for _, i := range caddy.Instances() {
		i.StorageMu.RLock()
		if ours, ok := i.Storage[instanceKey{}].(*instance); ok {
			live[ours.generation] = true
		}
		i.StorageMu.RUnlock()
	}
	return live
}

// claim refuses two engines that ask the same server with the same key, since
// its rules are for both together, and two engines in one folder.
func claim(c *caddy.Controller, cfg config) error {
	if !cfg.online {
		return nil
	}
	i, s := instanceOf(c), cfg.settings
	who := identity{address: s.address(), key: cfg.secret} // by either version of the protocol
	if other, ok := i.identities[who]; ok && other != s {
		return c.Errf("another server block asks %s with the same key and different settings: protocol, mode, lists, max_entries, db, resolver, cache and where the key is must be identical in both blocks", s.address())
	}
	i.identities[who] = s
	if s.db == "" {
		return nil
	}
	if other, ok := i.folders[s.db]; ok && other != s {
		return c.Errf("db %s is in use by another server block with another key or endpoint: give each its own db", s.db)
	}
	i.folders[s.db] = s
	return nil
}
