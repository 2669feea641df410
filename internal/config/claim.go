package config

import (
	"strings"

	"github.com/coredns/caddy"
)

// claims are the directories and identities that the engines of one Corefile use.
type claims struct {
	folders    map[string]Settings   // who uses which folder
	identities map[Identity]Settings // who asks which server
}

// claimsKey is the key of the claims in the storage of an instance of CoreDNS.
type claimsKey struct{}

func claimsOf(c *caddy.Controller) *claims {
	if all, ok := c.Get(claimsKey{}).(*claims); ok {
		return all
	}
	all := &claims{folders: make(map[string]Settings), identities: make(map[Identity]Settings)}
	c.Set(claimsKey{}, all)
	return all
}

// Claim refuses two engines that ask the same server with the same key, because the
// server's rules hold for both together. It also refuses two engines in one directory.
// It is called for the server blocks of a Corefile one after the other, and compares
// each with those before it.
func Claim(c *caddy.Controller, cfg *Config) error {
	if !cfg.Online {
		return nil
	}
	claims, s := claimsOf(c), cfg.Settings
	for _, endpoint := range s.Endpoints() {
		who := Identity{Address: endpoint, key: cfg.Secret} // by either version of the protocol
		switch other, ok := claims.identities[who]; {
		case ok && other.Endpoint != s.Endpoint:
			return c.Errf("another server block asks %s with the same key and other endpoints: give both blocks the same endpoints in the same order", endpoint)
		case ok && other != s:
			return c.Errf("another server block asks %s with the same key and different settings: %s and where the key is must be identical in both blocks", endpoint, strings.Join(EngineWords(), ", "))
		}
		claims.identities[who] = s
	}
	if s.DB == "" {
		return nil
	}
	if other, ok := claims.folders[s.DB]; ok && other != s {
		return c.Errf("db %s is in use by another server block with another key or endpoint: give each its own db", s.DB)
	}
	claims.folders[s.DB] = s
	return nil
}
