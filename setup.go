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
	if err := claimFolder(c, cfg.settings); err != nil {
		return plugin.Error(pluginName, err)
	}
	s := &SafeBrowsing{config: cfg}
	if cfg.explain { // else the server refuses queries of class CH
		dnsserver.EnableChaos[pluginName] = struct{}{}
	}
	generation := generationOf(c)
	c.OnStartup(func() error {
		if !cfg.online {
			log.Info("Safe Browsing is off: to switch it on set api_key, api_key_file or $" + keyVariable + "; the operator's own lists are in force")
			return nil
		}
		e, err := engines.acquire(s, cfg.settings, generation)
		if err != nil {
			return plugin.Error(pluginName, err)
		}
		s.engine = e
		return nil
	})
	c.OnShutdown(func() error {
		engines.release(s)
		return nil
	})
	c.OnRestartFailed(func() error {
		engines.releaseAfter(generation)
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
	folders    map[string]settings // who uses which folder
}

var generations atomic.Uint64

func instanceOf(c *caddy.Controller) *instance {
	if i, ok := c.Get(instanceKey{}).(*instance); ok {
		return i
	}
	i := &instance{generation: generations.Add(1), folders: make(map[string]settings)}
	c.Set(instanceKey{}, i)
	return i
}

// generationOf returns a number that grows with each reading of the Corefile.
func generationOf(c *caddy.Controller) uint64 { return instanceOf(c).generation }

// claimFolder refuses two engines in one folder: each would take the other's
// lists for its own.
func claimFolder(c *caddy.Controller, s settings) error {
	if s.db == "" {
		return nil
	}
	folders := instanceOf(c).folders
	if other, ok := folders[s.db]; ok && other != s {
		return c.Errf("db %s is in use by another server block with other settings: give each its own db, or make their settings equal", s.db)
	}
	folders[s.db] = s
	return nil
}
