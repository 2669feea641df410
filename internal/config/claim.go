package config

import (
	"strings"

	"github.com/coredns/caddy"
)

// claims are what the engines of one reading of a Corefile use alone.
type claims struct {
	folders    map[string]Settings   // who uses which folder
	identities map[Identity]Settings // who asks which server
}

// claimsKey is where an instance of CoreDNS keeps its claims.
type claimsKey struct{}

func claimsOf(c *caddy.Controller) *claims {
	if all, ok := c.Get(claimsKey{}).(*claims); ok {
		return all
	}
	all := &claims{folders: make(map[string]Settings), identities: make(map[Identity]Settings)}
	c.Set(claimsKey{}, all)
	return all
}

// Claim refuses two engines that ask the same server with the same key, since
// its rules are for both together, and two engines in one folder. It compares with
// the server blocks of the same reading of the Corefile, which it is called for one
// after the other.
func Claim(c *caddy.Controller, cfg *Config) error {
	if !cfg.Online {
		return nil
	}
	claims, s := claimsOf(c), cfg.Settings
	who := Identity{Address: s.Address(), key: cfg.Secret} // by either version of the protocol
	if other, ok := claims.identities[who]; ok && other != s {
		return c.Errf("another server block asks %s with the same key and different settings: %s and where the key is must be identical in both blocks", s.Address(), strings.Join(EngineWords(), ", "))
	}
	claims.identities[who] = s
	if s.DB == "" {
		return nil
	}
	if other, ok := claims.folders[s.DB]; ok && other != s {
		return c.Errf("db %s is in use by another server block with another key or endpoint: give each its own db", s.DB)
	}
	claims.folders[s.DB] = s
	return nil
}
